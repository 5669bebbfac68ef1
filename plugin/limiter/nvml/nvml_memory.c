/* nvml_memory.c - the card's memory as if it had the limit's size. */
#include "nvml_card.h"

struct card *nvml_card(nvmlDevice_t device)
{
	char text[96];
	uint8_t uuid[16];

	if (DRIVER(nvmlDeviceGetUUID)(device, text, sizeof(text)) != NVML_SUCCESS ||
	    !limits_uuid(text, uuid))
		return NULL;
	return limits_card(uuid);
}

/* A driver that is not there has no words for it either. */
const char EXPORT *nvmlErrorString(nvmlReturn_t code)
{
	if (driver_find(FN_nvmlErrorString) != NULL)
		return DRIVER(nvmlErrorString)(code);
	return code == NVML_ERROR_LIBRARY_NOT_FOUND ? "NVML Shared Library Not Found" : "Unknown Error";
}

nvmlReturn_t EXPORT nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct nvmlMemory *out)
{
	nvmlReturn_t ret = DRIVER(nvmlDeviceGetMemoryInfo)(device, out);
	struct card *card = ret == NVML_SUCCESS ? nvml_card(device) : NULL;
	uint64_t limit;

	if (card == NULL)
		return ret;
	limit = limits_memory(card);
	if (limit < out->total)
		out->total = limit;
	out->used = usage_total(card_index(card)) + limits_uncounted(card);
	if (out->used > out->total)
		out->used = out->total;
	out->free = out->total - out->used;
	return ret;
}

nvmlReturn_t EXPORT nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct nvmlMemory_v2 *out)
{
	nvmlReturn_t ret = DRIVER(nvmlDeviceGetMemoryInfo_v2)(device, out);
	struct card *card = ret == NVML_SUCCESS ? nvml_card(device) : NULL;
	uint64_t limit;

	if (card == NULL)
		return ret;
	limit = limits_memory(card);
	if (limit < out->total)
		out->total = limit;
	out->reserved = 0;		/* what the driver keeps is no part of what was given */
	out->used = usage_total(card_index(card)) + limits_uncounted(card);
	if (out->used > out->total)
		out->used = out->total;
	out->free = out->total - out->used;
	return ret;
}
