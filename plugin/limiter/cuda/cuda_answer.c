/* cuda_answer.c - how large the card is, and how much of it is free: as if it had the limit's size. */
#include "account.h"

#define UINT_BYTES 0xffffffffu

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
CUresult EXPORT cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUresult ret = CALL(cuMemGetInfo_v2, free_bytes, total);
	size_t all = 0, left = 0;
	struct card *card;
	struct size seen;
	CUcontext context;

	if (ret != CUDA_SUCCESS || NESTED)
		return ret;
	accounts_renew();
	card = charge_current_card(&context);
	if (card == NULL)
		return ret;
	if (free_bytes == NULL || total == NULL)
		CALL(cuMemGetInfo_v2, &left, &all);
	seen = shown(card, (struct size){ total != NULL ? *total : all, free_bytes != NULL ? *free_bytes : left });
	if (total != NULL)
		*total = seen.total;
	if (free_bytes != NULL)
		*free_bytes = seen.free;
	return ret;
}

static unsigned int narrow(uint64_t bytes)
{
	return bytes < UINT_BYTES ? (unsigned int)bytes : UINT_BYTES;
}

CUresult EXPORT cuMemGetInfo(unsigned int *free_bytes, unsigned int *total)
{
	CUresult ret = CALL(cuMemGetInfo, free_bytes, total);
	unsigned int all = 0, left = 0;
	struct card *card;
	struct size seen;
	CUcontext context;

	if (ret != CUDA_SUCCESS || NESTED)
		return ret;
	accounts_renew();
	card = charge_current_card(&context);
	if (card == NULL)
		return ret;
	if (free_bytes == NULL || total == NULL)
		CALL(cuMemGetInfo, &left, &all);
	seen = shown(card, (struct size){ total != NULL ? *total : all, free_bytes != NULL ? *free_bytes : left });
	if (total != NULL)
		*total = narrow(seen.total);
	if (free_bytes != NULL)
		*free_bytes = narrow(seen.free);
	return ret;
}

CUresult EXPORT cuDeviceTotalMem_v2(size_t *out, CUdevice device)
{
	CUresult ret = CALL(cuDeviceTotalMem_v2, out, device);
	struct card *card;

	if (ret != CUDA_SUCCESS || NESTED || out == NULL)
		return ret;
	card = charge_device_card(device);
	if (card != NULL && limits_memory(card) < *out)
		*out = limits_memory(card);
	return ret;
}

CUresult EXPORT cuDeviceTotalMem(unsigned int *out, CUdevice device)
{
	CUresult ret = CALL(cuDeviceTotalMem, out, device);
	struct card *card;

	if (ret != CUDA_SUCCESS || NESTED || out == NULL)
		return ret;
	card = charge_device_card(device);
	if (card != NULL && limits_memory(card) < *out)
		*out = narrow(limits_memory(card));
	return ret;
}
