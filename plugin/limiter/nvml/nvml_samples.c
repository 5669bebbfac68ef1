/* nvml_samples.c - what NVML measured of each process, for the container's own alone.
 *
 * The driver writes all that it has into memory of ours, and what is of this container's processes is
 * passed on. A driver that names a process by another number than it has in here shows none.
 * Accounting keeps processes that have ended, whose numbers may have come again: it is refused. */
#include "nvml_card.h"
#include "system.h"

#define SPARE 64			/* more entries may come between two calls */

/* What of the driver's a call gives: the entries' size, and where their pid stands. */
struct rows {
	char *all;
	size_t size, pid_at;
	unsigned int count, room;
};

static bool rows_begin(struct rows *rows, unsigned int count)
{
	rows->room = count < 1u << 20 ? count + SPARE : 0;
	rows->count = rows->room;
	rows->all = rows->room != 0 ? system_map(rows->room * rows->size, -1) : NULL;
	return rows->all != NULL;
}

/* Keep the rows of the container's processes with something on the card. */
static void rows_own(struct rows *rows, nvmlDevice_t device)
{
	struct usage_process list[USAGE_SLOTS];
	struct card *card = nvml_card(device);
	unsigned int own = card != NULL ? usage_processes(card_index(card), list, USAGE_SLOTS) : 0;
	unsigned int kept = 0;

	if (rows->count > rows->room)
		rows->count = rows->room;
	for (unsigned int i = 0; i < rows->count; i++) {
		const char *row = rows->all + i * rows->size;
		unsigned int pid = *(const unsigned int *)(row + rows->pid_at), at = 0;

		while (at < own && (unsigned int)list[at].pid != pid)
			at++;
		if (at < own)
			__builtin_memmove(rows->all + kept++ * rows->size, row, rows->size);
	}
	rows->count = kept;
}

/* Into the program's list, which has so much room; ret: where there are none. */
static nvmlReturn_t rows_give(struct rows *rows, void *out, unsigned int room, unsigned int *count,
			      nvmlReturn_t none)
{
	nvmlReturn_t ret = rows->count == 0 ? none : NVML_SUCCESS;

	*count = rows->count;
	if (rows->count > (out != NULL ? room : 0))
		ret = NVML_ERROR_INSUFFICIENT_SIZE;
	else
		__builtin_memcpy(out, rows->all, rows->count * rows->size);
	system_unmap(rows->all, rows->room * rows->size);
	return ret;
}

static nvmlReturn_t rows_drop(struct rows *rows, nvmlReturn_t ret)
{
	system_unmap(rows->all, rows->room * rows->size);
	return ret;
}

#define ROWS(layout) { .size = sizeof(layout), .pid_at = offsetof(layout, pid) }

nvmlReturn_t EXPORT nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
						    struct nvmlProcessUtilization *out,
						    unsigned int *count, unsigned long long since)
{
	struct rows rows = ROWS(struct nvmlProcessUtilization);
	unsigned int room = count != NULL ? *count : 0, all = 0;
	nvmlReturn_t ret = DRIVER(nvmlDeviceGetProcessUtilization)(device, NULL,
								   count != NULL ? &all : NULL, since);

	if (!answered(ret))
		return ret;
	if (!rows_begin(&rows, all))
		return NVML_ERROR_MEMORY;
	ret = DRIVER(nvmlDeviceGetProcessUtilization)(device, (struct nvmlProcessUtilization *)rows.all,
						      &rows.count, since);
	if (ret != NVML_SUCCESS)
		return rows_drop(&rows, ret);
	rows_own(&rows, device);
	return rows_give(&rows, out, room, count, NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t EXPORT nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
							  struct nvmlProcessesUtilizationInfo_v1 *out)
{
	struct rows rows = ROWS(struct nvmlProcessUtilizationInfo_v1);
	struct nvmlProcessesUtilizationInfo_v1 asked;
	nvmlReturn_t ret;

	if (out == NULL)
		return DRIVER(nvmlDeviceGetProcessesUtilizationInfo)(device, out);
	asked = *out;
	if (asked.version != NVML_VERSION_1(asked))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	asked.count = 0;
	asked.list = NULL;
	ret = DRIVER(nvmlDeviceGetProcessesUtilizationInfo)(device, &asked);
	if (!answered(ret))
		return ret;
	if (!rows_begin(&rows, asked.count))
		return NVML_ERROR_MEMORY;
	asked.count = rows.count;
	asked.list = (struct nvmlProcessUtilizationInfo_v1 *)rows.all;
	ret = DRIVER(nvmlDeviceGetProcessesUtilizationInfo)(device, &asked);
	if (ret != NVML_SUCCESS)
		return rows_drop(&rows, ret);
	rows.count = asked.count;
	rows_own(&rows, device);
	return rows_give(&rows, out->list, out->count, &out->count, NVML_ERROR_NOT_FOUND);
}

/* Of who encodes or captures the screen: not all have a slot. */
#define SESSIONS(name, layout)                                                                    \
	struct rows rows = ROWS(layout);                                                          \
	unsigned int room = count != NULL ? *count : 0, all = 0;                                  \
	nvmlReturn_t ret = DRIVER(name)(device, count != NULL ? &all : NULL, NULL);               \
                                                                                                  \
	if (!answered(ret))                                                                       \
		return ret;                                                                       \
	if (!rows_begin(&rows, all))                                                              \
		return NVML_ERROR_MEMORY;                                                         \
	ret = DRIVER(name)(device, &rows.count, (layout *)rows.all);                              \
	if (ret != NVML_SUCCESS)                                                                  \
		return rows_drop(&rows, ret);                                                     \
	rows_own(&rows, device);                                                                  \
	if (out == NULL) {	/* it asks how many there are */                                  \
		*count = rows.count;                                                              \
		return rows_drop(&rows, NVML_SUCCESS);                                            \
	}                                                                                         \
	return rows_give(&rows, out, room, count, NVML_SUCCESS)

nvmlReturn_t EXPORT nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *count,
						 struct nvmlEncoderSession *out)
{
	SESSIONS(nvmlDeviceGetEncoderSessions, struct nvmlEncoderSession);
}

nvmlReturn_t EXPORT nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *count,
					     struct nvmlFBCSession *out)
{
	SESSIONS(nvmlDeviceGetFBCSessions, struct nvmlFBCSession);
}

/* The driver is asked for what it makes of the device; a list of its numbers is not for the container. */
static nvmlReturn_t refused(nvmlDevice_t device)
{
	unsigned int none = 0;
	nvmlReturn_t ret = DRIVER(nvmlDeviceGetAccountingPids)(device, &none, NULL);

	return answered(ret) || ret == NVML_ERROR_INVALID_ARGUMENT ? NVML_ERROR_NOT_SUPPORTED : ret;
}

nvmlReturn_t EXPORT nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
						unsigned int *out)
{
	(void)out;
	return count == NULL ? NVML_ERROR_INVALID_ARGUMENT : refused(device);
}

nvmlReturn_t EXPORT nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, void *out)
{
	(void)pid;
	return out == NULL ? NVML_ERROR_INVALID_ARGUMENT : refused(device);
}

nvmlReturn_t EXPORT nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, void *out)
{
	return out == NULL ? NVML_ERROR_INVALID_ARGUMENT : refused(device);
}
