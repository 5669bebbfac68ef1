/* cuda_answer.c - how large the card is, and how much of it is free: as if it had the limit's size. */
#include "account.h"

/* Both macros below are for two widths of sizes: those of the oldest forms have 32 bits. */
#define AT_MOST(bytes, most) ((bytes) < (most) ? (__typeof__(most))(bytes) : (most))

struct size {
	uint64_t total, free;
};

/* What the container sees of a card of which the driver says real. */
static struct size shown(struct card *card, struct size real)
{
	uint64_t limit = limits_memory(card);
	uint64_t used = usage_total(card_index(card)) + limits_uncounted(card);
	struct size seen = { limit < real.total ? limit : real.total, 0 };

	if (used < seen.total)
		seen.free = seen.total - used;
	if (seen.free > real.free)	/* others hold what is ours: nobody can have more */
		seen.free = real.free;
	return seen;
}

/* A driver that takes one place alone is asked for the other here. */
#define GET_INFO(name, free_bytes, total)							\
	do {											\
		CUresult ret = CALL(name, free_bytes, total);					\
		__typeof__(*(total)) all = 0, left = 0;						\
		struct card *card;								\
		struct size seen;								\
		CUcontext context;								\
												\
		if (ret != CUDA_SUCCESS || NESTED)						\
			return ret;								\
		accounts_renew();								\
		card = charge_current_card(&context);						\
		if (card == NULL)								\
			return ret;								\
		if ((free_bytes) == NULL || (total) == NULL)					\
			CALL(name, &left, &all);						\
		seen = shown(card, (struct size){ (total) != NULL ? *(total) : all,		\
						  (free_bytes) != NULL ? *(free_bytes) : left });	\
		if ((total) != NULL)								\
			*(total) = AT_MOST(seen.total, (__typeof__(all))-1);			\
		if ((free_bytes) != NULL)							\
			*(free_bytes) = AT_MOST(seen.free, (__typeof__(all))-1);		\
		return ret;									\
	} while (0)

CUresult EXPORT cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	GET_INFO(cuMemGetInfo_v2, free_bytes, total);
}

CUresult EXPORT cuMemGetInfo(unsigned int *free_bytes, unsigned int *total)
{
	GET_INFO(cuMemGetInfo, free_bytes, total);
}

#define TOTAL_MEMORY(name, out, device)								\
	do {											\
		CUresult ret = CALL(name, out, device);						\
		struct card *card;								\
		uint64_t limit;									\
												\
		if (ret != CUDA_SUCCESS || NESTED || (out) == NULL)				\
			return ret;								\
		card = charge_device_card(device);						\
		limit = card != NULL ? limits_memory(card) : UINT64_MAX;			\
		if (limit < *(out))								\
			*(out) = limit;								\
		return ret;									\
	} while (0)

CUresult EXPORT cuDeviceTotalMem_v2(size_t *out, CUdevice device)
{
	TOTAL_MEMORY(cuDeviceTotalMem_v2, out, device);
}

CUresult EXPORT cuDeviceTotalMem(unsigned int *out, CUdevice device)
{
	TOTAL_MEMORY(cuDeviceTotalMem, out, device);
}
