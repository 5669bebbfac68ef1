/* cuda_ipc.c - memory of another process: counted there, not here. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_objects.h"

struct handle {				/* CUipcMemHandle, 64 bytes */
	char mark[8];
	uint64_t pid, address, bytes;
	char uuid[32];			/* the begin of the card's or instance's */
};

static const char mark[8] = "edgsimip";

static void own_uuid(const struct cu_dev *dev, char out[32])
{
	memcpy(out, dev->mig != NULL ? dev->mig->uuid : dev->card->uuid, 32);
}

SIM_API CUresult cuIpcGetMemHandle(struct handle *out, CUdeviceptr at)
{
	CUresult ret = cu_enter(__func__);
	struct cu_object *object;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	object = cu_find(CU_MEMORY, at);
	if (object == NULL || object->drop != NULL || object->bytes == 0) {
		ret = CUDA_ERROR_INVALID_VALUE;	/* pools and managed memory have none */
	} else {
		memset(out, 0, sizeof(*out));
		memcpy(out->mark, mark, sizeof(mark));
		out->pid = (uint64_t)getpid();
		out->address = at;
		out->bytes = object->size;
		own_uuid(object->dev, out->uuid);
	}
	cu_unlock();
	return ret;
}

static CUresult open_memory(const char *call, CUdeviceptr *out, const struct handle *handle,
			    unsigned int flags)
{
	struct cu_object *object;
	CUresult ret = cu_make(call, CU_MEMORY, sizeof(*object), &object);
	char uuid[32];

	if (ret != CUDA_SUCCESS)
		return ret;
	own_uuid(object->dev, uuid);
	if (out == NULL || flags != 1 || memcmp(handle->mark, mark, sizeof(mark)) != 0 ||
	    memcmp(handle->uuid, uuid, sizeof(uuid)) != 0)
		ret = CUDA_ERROR_INVALID_VALUE;
	else if (handle->pid == (uint64_t)getpid())
		ret = CUDA_ERROR_INVALID_CONTEXT;	/* as the real one: not one's own */
	if (ret != CUDA_SUCCESS) {
		free(object);
		return ret;
	}
	cu_lock();
	object->key = cu_addresses(handle->bytes, 2 * SIM_MIB);
	cu_unlock();
	object->size = handle->bytes;
	ret = cu_keep(object);
	if (ret == CUDA_SUCCESS)
		*out = object->key;
	return ret;
}

SIM_API CUresult cuIpcOpenMemHandle(CUdeviceptr *out, struct handle handle, unsigned int flags)
{
	return open_memory(__func__, out, &handle, flags);
}

SIM_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, struct handle handle, unsigned int flags)
{
	return open_memory(__func__, out, &handle, flags);
}

SIM_API CUresult cuIpcCloseMemHandle(CUdeviceptr at)
{
	return cu_end(__func__, CU_MEMORY, at, CUDA_ERROR_INVALID_VALUE);
}
