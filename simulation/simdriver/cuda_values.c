/* cuda_values.c - values in memory that streams wait for and write.
 *
 * The card's memory has nothing behind it, so its values are kept here, by address. Memory of the host
 * is read through a file: it may be gone while an operation still waits for it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "cuda_engine.h"

#define VALUES 256
#define MANAGED_FROM 0x700000000000ULL	/* where the kernel maps; the card's own addresses are below */

enum { AT_LEAST = 0, EQUAL = 1, AND = 2, NOR = 3 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	uint64_t address, value;
} values[VALUES];
static int memory = -1;

bool cu_value_on_host(uint64_t address)
{
	return cu_find_at(CU_HOST, address) != NULL ||
	       (address >= MANAGED_FROM && cu_find_at(CU_MEMORY, address) != NULL);
}

static uint64_t *place_of(uint64_t address)
{
	for (int i = 0; i < VALUES; i++) {
		if (values[i].address == 0)
			values[i].address = address;
		if (values[i].address == address)
			return &values[i].value;
	}
	return &values[VALUES - 1].value;
}

static int own_memory(void)
{
	if (memory < 0)
		memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	return memory;
}

static uint64_t read_value(const struct cu_value *value)
{
	uint64_t seen = 0;

	pthread_mutex_lock(&mutex);
	if (!value->host)
		seen = *place_of(value->address);
	else if (pread(own_memory(), &seen, value->wide ? 8 : 4, (off_t)value->address) < 0)
		seen = 0;
	pthread_mutex_unlock(&mutex);
	return seen;
}

bool cu_value_met(const struct cu_value *value)
{
	uint64_t seen = read_value(value), wanted = value->value;

	switch (value->flags & 3) {
	case EQUAL:
		return seen == wanted;
	case AND:
		return (seen & wanted) != 0;
	case NOR:
		return value->wide ? ~(seen | wanted) != 0 : (uint32_t)~(seen | wanted) != 0;
	default:
		return value->wide ? (int64_t)(seen - wanted) >= 0 :
				     (int32_t)((uint32_t)seen - (uint32_t)wanted) >= 0;
	}
}

void cu_value_write(const struct cu_value *value)
{
	ssize_t wrote = 0;

	pthread_mutex_lock(&mutex);
	if (value->host)
		wrote = pwrite(own_memory(), &value->value, value->wide ? 8 : 4, (off_t)value->address);
	else
		*place_of(value->address) = value->value;
	pthread_mutex_unlock(&mutex);
	(void)wrote;			/* the memory is gone: so is who would look */
}
