/* cuda_host.c - memory of the host that the card may use: costs the card nothing. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda_objects.h"

struct host_memory {
	struct cu_object object;
	unsigned int flags;
	bool registered;
};

static void release(struct cu_object *object)
{
	if (!((struct host_memory *)object)->registered)
		munmap((void *)(uintptr_t)object->key, object->size);
	free(object);
}

static CUresult keep(const char *call, struct host_memory given, void **out)
{
	struct cu_object *object;
	struct host_memory *memory;
	CUresult ret = cu_make(call, CU_HOST, sizeof(*memory), &object);
	void *at = (void *)(uintptr_t)given.object.key;

	if (ret != CUDA_SUCCESS)
		return ret;
	memory = (struct host_memory *)object;
	if (!given.registered)
		at = mmap(NULL, given.object.size, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED) {
		free(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memory->flags = given.flags;
	memory->registered = given.registered;
	object->key = cu_key(at);
	object->size = given.object.size;
	object->drop = release;
	if (out != NULL)
		*out = at;
	return cu_keep(object);
}

SIM_API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	struct host_memory memory = { .object.size = bytes, .flags = flags };

	if (out == NULL || bytes == 0 || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	return keep(__func__, memory, out);
}

SIM_API CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
	struct host_memory memory = { .object.size = bytes };

	return out == NULL || bytes == 0 ? CUDA_ERROR_INVALID_VALUE : keep(__func__, memory, out);
}

SIM_API CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned int flags)
{
	struct host_memory memory = { .object = { .key = cu_key(at), .size = bytes }, .flags = flags,
				      .registered = true };

	return at == NULL || bytes == 0 ? CUDA_ERROR_INVALID_VALUE : keep(__func__, memory, NULL);
}

SIM_API CUresult cuMemFreeHost(void *at)
{
	return cu_end(__func__, CU_HOST, cu_key(at), CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuMemHostUnregister(void *at)
{
	return cu_end(__func__, CU_HOST, cu_key(at), CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *at, unsigned int flags)
{
	CUresult ret = cu_enter(__func__);
	bool found;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	found = cu_find_at(CU_HOST, cu_key(at)) != NULL;
	cu_unlock();
	if (out == NULL || flags != 0 || !found)
		return CUDA_ERROR_INVALID_VALUE;
	*out = cu_key(at);
	return CUDA_SUCCESS;
}

SIM_API CUresult cuMemHostGetFlags(unsigned int *out, void *at)
{
	CUresult ret = cu_enter(__func__);
	struct cu_object *object;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	object = cu_find_at(CU_HOST, cu_key(at));
	if (object != NULL && out != NULL)
		*out = ((struct host_memory *)object)->flags;
	cu_unlock();
	return object != NULL && out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
