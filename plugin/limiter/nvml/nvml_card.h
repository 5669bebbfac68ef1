/* nvml_card.h - from NVML's device to the container's card. */
#ifndef EDGEGPU_LIMITER_NVML_CARD_H
#define EDGEGPU_LIMITER_NVML_CARD_H

#include "limits.h"
#include "nvml.h"
#include "usage.h"

struct card *nvml_card(nvmlDevice_t device);	/* NULL: the driver does not know the device */

/* The driver knows the device, and what is asked of it. */
static inline bool answered(nvmlReturn_t ret)
{
	return ret == NVML_SUCCESS || ret == NVML_ERROR_INSUFFICIENT_SIZE;
}

#endif
