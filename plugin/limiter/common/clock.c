/* clock.c - the kernel's own code for the time, which it lays into each process (vDSO).
 *
 * Where it is the kernel says (Linux 6.4), or /proc/self/auxv does, which a process that is not root and
 * has itself made undumpable cannot read. Without it the kernel is called, which takes some ten times as
 * long. */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>

#include "clock.h"
#include "system.h"
#include "text.h"

#if defined(__aarch64__)
#define CLOCK_FUNCTION "__kernel_clock_gettime"
#else
#define CLOCK_FUNCTION "__vdso_clock_gettime"
#endif
#ifndef PR_GET_AUXV			/* Linux 6.4 */
#define PR_GET_AUXV 0x41555856
#endif
#define MACHINES_TIME 0xeffffffau	/* the namespace of every process at boot (PROC_TIME_INIT_INO in the kernel) */
#define SYMBOLS_MAX 256			/* more than any kernel has there */
#define AUXV_MAX 64

typedef int (*clock_function)(clockid_t which, struct timespec *out);

static int call_kernel(clockid_t which, struct timespec *out)
{
	return (int)system_call(SYS_clock_gettime, which, (long)out, 0, 0, 0, 0);
}

/* A value that the kernel gave this process at its exec; 0: it cannot be had. */
static uint64_t auxiliary(uint64_t type)
{
	ElfW(auxv_t) all[AUXV_MAX];
	long got = system_call(SYS_prctl, PR_GET_AUXV, (long)all, sizeof(all), 0, 0, 0);
	int file = got <= 0 ? system_open("/proc/self/auxv", O_RDONLY) : -1;

	if (file >= 0) {
		got = system_read(file, all, sizeof(all));
		system_close(file);
	}
	for (long i = 0; i < AUXV_MAX && i < got / (long)sizeof(*all) && all[i].a_type != AT_NULL; i++)
		if (all[i].a_type == type)
			return all[i].a_un.a_val;
	return 0;
}

struct image {
	uintptr_t offset;		/* to what its addresses say */
	const ElfW(Sym) *symbols;
	const char *names;
	const ElfW(Word) *hash;
};

static bool read_image(const ElfW(Ehdr) *header, struct image *out)
{
	const ElfW(Phdr) *segments = (const void *)((uintptr_t)header + header->e_phoff);
	const ElfW(Dyn) *dynamic = NULL;
	bool loaded = false;

	for (unsigned int i = 0; i < header->e_phnum; i++) {
		if (segments[i].p_type == PT_LOAD && !loaded) {
			out->offset = (uintptr_t)header + segments[i].p_offset - segments[i].p_vaddr;
			loaded = true;
		} else if (segments[i].p_type == PT_DYNAMIC) {
			dynamic = (const void *)((uintptr_t)header + segments[i].p_offset);
		}
	}
	for (; loaded && dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
		const void *at = (const void *)(out->offset + dynamic->d_un.d_ptr);

		if (dynamic->d_tag == DT_SYMTAB)
			out->symbols = at;
		else if (dynamic->d_tag == DT_STRTAB)
			out->names = at;
		else if (dynamic->d_tag == DT_HASH)
			out->hash = at;
	}
	return out->symbols != NULL && out->names != NULL;
}

/* Without a hash table: the names follow the symbols. */
static unsigned int symbols_of(const struct image *image)
{
	uintptr_t bytes = (uintptr_t)image->names - (uintptr_t)image->symbols;

	if (image->hash != NULL)
		return image->hash[1] < SYMBOLS_MAX ? image->hash[1] : SYMBOLS_MAX;
	return bytes / sizeof(ElfW(Sym)) < SYMBOLS_MAX ? (unsigned int)(bytes / sizeof(ElfW(Sym))) : 0;
}

static clock_function find(void)
{
	const ElfW(Ehdr) *header = (const void *)(uintptr_t)auxiliary(AT_SYSINFO_EHDR);
	struct image image = { 0 };

	if (header == NULL || !read_image(header, &image))
		return call_kernel;
	for (unsigned int i = 0; i < symbols_of(&image); i++) {
		const ElfW(Sym) *symbol = &image.symbols[i];

		if (symbol->st_shndx != SHN_UNDEF && text_equal(image.names + symbol->st_name, CLOCK_FUNCTION))
			return (clock_function)(image.offset + symbol->st_value);
	}
	return call_kernel;
}

static clock_function known;
static uint64_t space;			/* the time namespace whose offset is known; 0: none; atomic */
static int64_t ahead_ns;		/* what CLOCK_MONOTONIC is ahead there of the machine's; atomic */

static uint64_t inode_of(const char *path)
{
	struct stat st;

	return system_stat(path, &st) == 0 ? st.st_ino : 0;
}

/* A number behind spaces, which may be below 0. */
static bool read_number(const char **at, int64_t *out)
{
	bool negative;
	uint64_t value;

	while (**at == ' ')
		(*at)++;
	negative = **at == '-';
	if (!text_number(*at + negative, &value, at))
		return false;
	*out = negative ? -(int64_t)value : (int64_t)value;
	return true;
}

/* The kernel says it of the namespace that the process's children will have (time_namespaces(7)). */
static bool read_ahead(int64_t *out)
{
	int file = system_open("/proc/self/timens_offsets", O_RDONLY);
	int64_t seconds, rest;
	char text[128];
	const char *at;
	long got;

	if (file < 0)
		return false;
	got = system_read(file, text, sizeof(text) - 1);
	system_close(file);
	text[got > 0 ? got : 0] = '\0';
	at = text + text_begins(text, "monotonic ");
	if (at == text || !read_number(&at, &seconds) || !read_number(&at, &rest))
		return false;
	*out = seconds * 1000000000 + rest;
	return true;
}

/* The debts of a container, and what the plugin says, are by the machine's clock. Without /proc nothing is known of it,
 * as in kernels that have one clock for all (before 5.6). */
bool clock_renew(void)
{
	uint64_t now = inode_of("/proc/self/ns/time");
	int64_t ahead = 0;

	if (now == 0 || now == __atomic_load_n(&space, __ATOMIC_RELAXED))
		return true;
	if (now != MACHINES_TIME && (inode_of("/proc/self/ns/time_for_children") != now || !read_ahead(&ahead))) {
		__atomic_store_n(&space, 0, __ATOMIC_RELAXED);
		return false;
	}
	__atomic_store_n(&ahead_ns, ahead, __ATOMIC_RELAXED);
	__atomic_store_n(&space, now, __ATOMIC_RELAXED);
	return true;
}

bool clock_is_machines(void)
{
	uint64_t now = inode_of("/proc/self/ns/time");

	return now == 0 || now == MACHINES_TIME;
}

static struct timespec ask(clockid_t which)
{
	clock_function function = __atomic_load_n(&known, __ATOMIC_RELAXED);
	struct timespec now = { 0, 0 };

	if (__builtin_expect(function == NULL, 0)) {
		clock_renew();
		function = find();
		__atomic_store_n(&known, function, __ATOMIC_RELAXED);
	}
	if (__builtin_expect(function(which, &now) != 0, 0))
		call_kernel(which, &now);
	return now;
}

uint64_t clock_ns(void)
{
	struct timespec now = ask(CLOCK_MONOTONIC);
	uint64_t ahead = (uint64_t)__atomic_load_n(&ahead_ns, __ATOMIC_RELAXED);

	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - ahead;
}

uint64_t clock_coarse_ms(void)
{
	struct timespec now = ask(CLOCK_MONOTONIC_COARSE);
	uint64_t ahead = (uint64_t)__atomic_load_n(&ahead_ns, __ATOMIC_RELAXED);

	return ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - ahead) / 1000000;
}

/* Once: a process that could ask for it first and cannot later stays who it was. A child of fork has its parent's. */
uint64_t clock_random(void)
{
	static uint64_t drawn;
	uint64_t value = __atomic_load_n(&drawn, __ATOMIC_RELAXED);
	const void *at;

	if (value != 0)
		return value;
	at = (const void *)(uintptr_t)auxiliary(AT_RANDOM);
	if (at != NULL)
		memcpy(&value, at, sizeof(value));
	__atomic_store_n(&drawn, value, __ATOMIC_RELAXED);
	return value;
}
