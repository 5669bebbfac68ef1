/* nullnvml.c - a libnvidia-ml.so.1 that answers at once: one card, which the caller uses and two processes of others. */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define STRANGER 4242

enum { SUCCESS, INSUFFICIENT = 7, DEVICE = 1 };

/* The ones before and behind the caller are others. */
static unsigned int pid_of(unsigned int row)
{
	return row == 1 ? (unsigned int)getpid() : STRANGER + row;
}

/* Three rows of `size` bytes with a pid somewhere in them, as the driver gives them. */
static int rows(unsigned int *count, void *out, size_t size, size_t pid_at)
{
	unsigned int room = out != NULL ? *count : 0;

	*count = 3;
	if (room < 3)
		return INSUFFICIENT;
	memset(out, 0x11, 3 * size);
	for (unsigned int i = 0; i < 3; i++)
		memcpy((char *)out + i * size + pid_at, &(unsigned int){ pid_of(i) }, sizeof(unsigned int));
	return SUCCESS;
}

int EXPORT nvmlInit_v2(void)
{
	return SUCCESS;
}

int EXPORT nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	return SUCCESS;
}

int EXPORT nvmlShutdown(void)
{
	return SUCCESS;
}

int EXPORT nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **out)
{
	*out = (void *)(uintptr_t)(DEVICE + index);
	return SUCCESS;
}

int EXPORT nvmlDeviceGetUUID(void *device, char *out, unsigned int size)
{
	(void)device;
	strncpy(out, "GPU-abababab-abab-abab-abab-abababababab", size);
	return SUCCESS;
}

int EXPORT nvmlDeviceGetProcessUtilization(void *device, void *out, unsigned int *count,
					   unsigned long long since)
{
	(void)device;
	(void)since;
	return rows(count, out, 32, 0);
}

struct list {
	unsigned int version, count;
	unsigned long long since;
	void *out;
};

int EXPORT nvmlDeviceGetProcessesUtilizationInfo(void *device, struct list *list)
{
	(void)device;
	return rows(&list->count, list->out, 40, 8);
}

struct details {
	unsigned int version, mode, count;
	void *out;
};

int EXPORT nvmlDeviceGetRunningProcessDetailList(void *device, struct details *list)
{
	(void)device;
	return rows(&list->count, list->out, 32, 0);
}

/* Sessions are counted without a list, and that is no error. */
int EXPORT nvmlDeviceGetEncoderSessions(void *device, unsigned int *count, void *out)
{
	int ret = rows(count, out, 32, 4);

	(void)device;
	return out == NULL ? SUCCESS : ret;
}

int EXPORT nvmlDeviceGetFBCSessions(void *device, unsigned int *count, void *out)
{
	int ret = rows(count, out, 48, 4);

	(void)device;
	return out == NULL ? SUCCESS : ret;
}

int EXPORT nvmlDeviceGetAccountingBufferSize(void *device, unsigned int *out)
{
	(void)device;
	*out = 4000;
	return SUCCESS;
}

int EXPORT nvmlDeviceGetAccountingPids(void *device, unsigned int *count, unsigned int *out)
{
	(void)device;
	return rows(count, out, sizeof(*out), 0);
}

int EXPORT nvmlDeviceGetAccountingStats(void *device, unsigned int pid, void *out)
{
	(void)device;
	(void)pid;
	memset(out, 0x11, 56);
	return SUCCESS;
}

int EXPORT nvmlDeviceGetAccountingStats_v2(void *device, void *out)
{
	(void)device;
	(void)out;
	return SUCCESS;
}
