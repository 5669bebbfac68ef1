/* cuda_vmm.c - virtual memory: a range costs nothing, what backs it does until nothing refers to it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_objects.h"

#define GRANULARITY (2 * SIM_MIB)
#define ON_DEVICE 1
#define POSIX_FD 1

struct location {
	int type, id;
};

struct properties {			/* CUmemAllocationProp */
	int type, handles;
	struct location location;
	void *win32;
	struct {
		unsigned char compression, rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

struct backing {
	struct cu_object object;
	struct properties properties;
	unsigned int references;	/* handles and mappings */
};

struct mapping {
	struct cu_object object;
	struct backing *backing;
};

struct exported {			/* what a shareable handle's file holds */
	char mark[8];
	struct properties properties;
	uint64_t size;
};
static const char mark[8] = "edgsimem";

static void unrefer(struct backing *backing)
{
	if (--backing->references == 0)
		cu_drop(&backing->object);
}

static void unmap(struct cu_object *object)
{
	struct backing *backing = ((struct mapping *)object)->backing;

	free(object);
	unrefer(backing);
}

SIM_API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t align, CUdeviceptr wish,
				     unsigned long long flags)
{
	CUresult ret = cu_enter(__func__);
	struct cu_object *range;

	(void)wish;
	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || bytes == 0 || bytes % GRANULARITY != 0 || (align & (align - 1)) != 0 ||
	    flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	range = calloc(1, sizeof(*range));
	if (range == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cu_lock();
	range->kind = CU_RANGE;
	range->key = cu_addresses(bytes, align > GRANULARITY ? align : GRANULARITY);
	range->size = bytes;
	*out = range->key;
	ret = cu_add(range);
	cu_unlock();
	return ret;
}

SIM_API CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes)
{
	CUresult ret = cu_enter(__func__);
	struct cu_object *range;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	range = cu_find(CU_RANGE, at);
	if (range == NULL || range->size != bytes || cu_find_at(CU_MAPPING, at) != NULL)
		ret = CUDA_ERROR_INVALID_VALUE;
	else
		cu_drop(range);
	cu_unlock();
	return ret;
}

static CUresult make(struct properties properties, size_t bytes, bool counted, struct backing **out)
{
	struct cu_dev *dev = cu_dev_at(properties.location.id);
	bool on_device = properties.location.type == ON_DEVICE;
	struct backing *backing;
	CUresult ret;

	if (on_device && dev == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	backing = calloc(1, sizeof(*backing));
	if (backing == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	backing->object = (struct cu_object){ .kind = CU_BACKING, .dev = dev, .size = bytes,
					      .bytes = on_device && counted ? bytes : 0 };
	backing->properties = properties;
	backing->references = 1;
	cu_lock();
	ret = cu_add(&backing->object);
	cu_unlock();
	if (ret != CUDA_SUCCESS)
		free(backing);
	else
		*out = backing;
	return ret;
}

SIM_API CUresult cuMemCreate(struct backing **out, size_t bytes, const struct properties *properties,
			     unsigned long long flags)
{
	CUresult ret = cu_enter(__func__);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || properties == NULL || bytes == 0 || bytes % GRANULARITY != 0 || flags != 0 ||
	    properties->type != 1)
		return CUDA_ERROR_INVALID_VALUE;
	return make(*properties, bytes, true, out);
}

static struct backing *find(const struct backing *handle)
{
	struct backing *backing = (struct backing *)cu_find(CU_BACKING, cu_key(handle));

	return backing;
}

SIM_API CUresult cuMemRelease(struct backing *handle)
{
	CUresult ret = cu_enter(__func__);
	struct backing *backing;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	backing = find(handle);
	if (backing == NULL)
		ret = CUDA_ERROR_INVALID_VALUE;
	else
		unrefer(backing);
	cu_unlock();
	return ret;
}

static CUresult map(CUdeviceptr at, size_t bytes, struct backing *backing)
{
	struct cu_object *range = cu_find_at(CU_RANGE, at);
	struct mapping *mapping;

	if (backing == NULL || range == NULL || bytes == 0 || bytes > backing->object.size ||
	    bytes > range->size - (at - range->key))
		return CUDA_ERROR_INVALID_VALUE;
	if (cu_find_at(CU_MAPPING, at) != NULL)
		return CUDA_ERROR_ALREADY_MAPPED;
	mapping = calloc(1, sizeof(*mapping));
	if (mapping == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mapping->object = (struct cu_object){ .kind = CU_MAPPING, .key = at, .size = bytes,
					      .drop = unmap };
	mapping->backing = backing;
	backing->references++;
	return cu_add(&mapping->object);
}

SIM_API CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, struct backing *handle,
			  unsigned long long flags)
{
	CUresult ret = cu_enter(__func__);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (offset != 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	ret = map(at, bytes, find(handle));
	cu_unlock();
	return ret;
}

/* Every mapping that begins in the range, as the real one. */
SIM_API CUresult cuMemUnmap(CUdeviceptr at, size_t bytes)
{
	CUresult ret = cu_enter(__func__);
	CUdeviceptr end = at + bytes;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	if (cu_find(CU_MAPPING, at) == NULL)
		ret = CUDA_ERROR_INVALID_VALUE;
	while (at < end) {
		struct cu_object *mapping = cu_find(CU_MAPPING, at);

		at += mapping != NULL ? mapping->size : GRANULARITY;
		if (mapping != NULL)
			cu_drop(mapping);
	}
	cu_unlock();
	return ret;
}

SIM_API CUresult cuMemRetainAllocationHandle(struct backing **out, void *at)
{
	CUresult ret = cu_enter(__func__);
	struct cu_object *mapping;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	mapping = cu_find_at(CU_MAPPING, cu_key(at));
	if (out == NULL || mapping == NULL) {
		ret = CUDA_ERROR_INVALID_VALUE;
	} else {
		*out = ((struct mapping *)mapping)->backing;
		(*out)->references++;
	}
	cu_unlock();
	return ret;
}

SIM_API CUresult cuMemGetAllocationPropertiesFromHandle(struct properties *out, struct backing *handle)
{
	CUresult ret = cu_enter(__func__);
	struct backing *backing;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	backing = find(handle);
	if (out == NULL || backing == NULL)
		ret = CUDA_ERROR_INVALID_VALUE;
	else
		*out = backing->properties;
	cu_unlock();
	return ret;
}

/* The file stands for the memory; it counts where it was made, and only while that process lives. */
SIM_API CUresult cuMemExportToShareableHandle(int *out, struct backing *handle, int type,
					      unsigned long long flags)
{
	struct exported content = { 0 };
	CUresult ret = cuMemGetAllocationPropertiesFromHandle(&content.properties, handle);
	int fd;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || flags != 0 || type != POSIX_FD ||
	    (content.properties.handles & POSIX_FD) == 0)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(content.mark, mark, sizeof(mark));
	content.size = handle->object.size;
	fd = memfd_create("edgegpu-sim-memory", MFD_CLOEXEC);
	if (fd < 0 || pwrite(fd, &content, sizeof(content), 0) != sizeof(content)) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	*out = fd;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuMemImportFromShareableHandle(struct backing **out, void *handle, int type)
{
	CUresult ret = cu_enter(__func__);
	struct exported content;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || type != POSIX_FD ||
	    pread((int)(intptr_t)handle, &content, sizeof(content), 0) != sizeof(content) ||
	    memcmp(content.mark, mark, sizeof(mark)) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	return make(content.properties, content.size, false, out);
}
