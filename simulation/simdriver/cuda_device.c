/* cuda_device.c - what a CUDA device is. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cuda_core.h"

#define ATTRIBUTE_LAST 150

struct cu_uuid {
	unsigned char bytes[16];
};

SIM_API CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, ordinal, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = ordinal;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetName(char *out, int len, CUdevice index)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(out, (size_t)len, "%s%s%s", dev->card->name, dev->mig != NULL ? " MIG " : "",
		 dev->mig != NULL ? dev->mig->profile : "");
	return CUDA_SUCCESS;
}

static void parse_uuid(const char *text, struct cu_uuid *out)
{
	int nibbles = 0;

	memset(out, 0, sizeof(*out));
	for (text += strcspn(text, "-"); *text != '\0' && nibbles < 32; text++) {
		int c = tolower((unsigned char)*text);

		if (!isxdigit(c))
			continue;
		c = isdigit(c) ? c - '0' : c - 'a' + 10;
		out->bytes[nibbles / 2] |= (unsigned char)(nibbles % 2 ? c : c << 4);
		nibbles++;
	}
}

SIM_API CUresult cuDeviceGetUuid(struct cu_uuid *out, CUdevice index)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	parse_uuid(dev->card->uuid, out);
	return CUDA_SUCCESS;
}

/* The second version tells instances of one card apart. */
SIM_API CUresult cuDeviceGetUuid_v2(struct cu_uuid *out, CUdevice index)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	parse_uuid(dev->mig != NULL ? dev->mig->uuid : dev->card->uuid, out);
	return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice index)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = dev->limit;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetPCIBusId(char *out, int len, CUdevice index)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || len < 13)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(out, (size_t)len, "%04X:%02X:%02X.0", dev->card->domain & 0xFFFF,
		 dev->card->bus & 0xFF, dev->card->slot & 0x1F);
	return CUDA_SUCCESS;
}

static const int fixed[][2] = {
	{ 1, 1024 }, { 2, 1024 }, { 3, 1024 }, { 4, 64 },		/* threads per block, x, y, z */
	{ 5, 2147483647 }, { 6, 65535 }, { 7, 65535 },		/* grid x, y, z */
	{ 8, 49152 }, { 9, 65536 }, { 10, 32 },			/* shared, constant, warp */
	{ 12, 65536 }, { 13, 1590000 }, { 16, MULTIPROCESSORS },		/* registers, kHz, multiprocessors */
	{ 19, 1 }, { 31, 1 }, { 36, 5001000 }, { 37, 256 },	/* host map, concurrent, memory */
	{ 38, 4194304 }, { 39, THREADS_EACH }, { 40, 3 }, { 41, 1 },	/* L2, threads, copy engines, UVA */
	{ 83, 1 }, { 115, 1 },					/* managed memory, pools */
};

static int attribute(const struct sim_card *card, int which)
{
	switch (which) {
	case 33:
		return (int)card->bus;
	case 34:
		return (int)card->slot;
	case 50:
		return (int)card->domain;
	case 75:
		return (int)card->cc_major;
	case 76:
		return (int)card->cc_minor;
	case 133:			/* contexts are MPS's */
		return cu_mps_client();
	}
	for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
		if (fixed[i][0] == which)
			return fixed[i][1];
	return 0;
}

SIM_API CUresult cuDeviceGetAttribute(int *out, int which, CUdevice index)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || which <= 0 || which > ATTRIBUTE_LAST)
		return CUDA_ERROR_INVALID_VALUE;
	*out = attribute(dev->card, which);
	return CUDA_SUCCESS;
}
