/* nvml_samples.c - how much of a card's time each process had, in windows that are over.
 *
 * As the real driver: processes that had none are not listed, and the answer is that nothing was found
 * where none had any, or no window is over since the one that the asker saw last. */
#include <time.h>

#include "nvml_core.h"

#define USERS_MAX 512
#define KEPT 6u				/* windows that are still known */
#define LATE_NS 20000000ULL		/* work is booked so much later, at most */
#define US 1000ULL

/* From the clock of the windows to that of the timestamps. */
static uint64_t offset_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / US - sim_now_ns() / US;
}

/* False: none is over since then. */
static bool windows_since(uint64_t seen_us, uint64_t *first, uint64_t *last)
{
	uint64_t offset = offset_us(), half = SIM_WINDOW_NS / US / 2;

	*last = (sim_now_ns() - LATE_NS) / SIM_WINDOW_NS - 1;
	*first = seen_us > offset ? (seen_us - offset + half) * US / SIM_WINDOW_NS : 0;
	if (*first + KEPT <= *last)
		*first = *last - KEPT + 1;
	return *first <= *last;
}

SIM_API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t dev, struct nvml_process_sample *out,
						     unsigned int *count, unsigned long long seen_us)
{
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, count);
	struct sim_share shares[USERS_MAX];
	uint64_t first, last;
	unsigned int n = 0, room;

	if (ret != NVML_SUCCESS)
		return ret;
	if (dev->mig != NULL || dev->card->mig_mode)
		return NVML_ERROR_NOT_SUPPORTED;
	if (windows_since(seen_us, &first, &last)) {
		sim_lock();
		n = sim_shares(nvml_entry(dev), first, last, shares, USERS_MAX);
		sim_unlock();
	}
	room = out == NULL ? 0 : *count;
	*count = n;
	if (n == 0)
		return NVML_ERROR_NOT_FOUND;
	if (n > room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < n; i++)
		out[i] = (struct nvml_process_sample){ .pid = shares[i].pid, .sm = shares[i].percent,
						       .timestamp = (last + 1) * SIM_WINDOW_NS / US +
								    offset_us() };
	return NVML_SUCCESS;
}
