/* cuda_arrays.c - arrays, 3D and mipmapped ones: memory that only the card can address. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "cuda_graph.h"

#define LEVELS_MAX 16
#define LAYERED 1U
#define CUBEMAP 4U
#define SPARSE 64U
#define DEFERRED 128U
#define ALIGNMENT 65536

struct descriptor {			/* CUDA_ARRAY3D_DESCRIPTOR */
	size_t width, height, depth;
	int format;
	unsigned int channels, flags;
};

struct descriptor_2d {			/* CUDA_ARRAY_DESCRIPTOR */
	size_t width, height;
	int format;
	unsigned int channels;
};

struct requirements {			/* CUDA_ARRAY_MEMORY_REQUIREMENTS */
	size_t bytes, alignment;
	unsigned int reserved[4];
};

struct array {
	struct cu_object object;
	struct descriptor descriptor;
	uint64_t needs;			/* bytes, also where the memory is mapped later */
	unsigned int levels;
	struct array *level[LEVELS_MAX];
};

static unsigned int element_bytes(int format)
{
	switch (format) {
	case 0x01:			/* 8 bits, unsigned and signed */
	case 0x08:
		return 1;
	case 0x02:			/* 16 bits, and half */
	case 0x09:
	case 0x10:
		return 2;
	case 0x03:			/* 32 bits, and float */
	case 0x0a:
	case 0x20:
		return 4;
	default:
		return 0;
	}
}

/* Layers, depth and height of 0 count as one; each level of a mipmap is half as wide. */
static bool measure(const struct descriptor *d, unsigned int levels, uint64_t *bytes)
{
	uint64_t element = (uint64_t)element_bytes(d->format) * d->channels;
	uint64_t width = d->width, height = d->height > 0 ? d->height : 1;
	uint64_t depth = d->depth > 0 ? d->depth : 1;

	*bytes = 0;
	if (element == 0 || width == 0 || (d->channels != 1 && d->channels != 2 && d->channels != 4) ||
	    width > 1U << 20 || height > 1U << 20 || depth > 1U << 16)
		return false;
	for (unsigned int i = 0; i < levels; i++) {
		*bytes += element * width * height * depth;
		width = width > 1 ? width / 2 : 1;
		height = height > 1 ? height / 2 : 1;
		if ((d->flags & (LAYERED | CUBEMAP)) == 0)
			depth = depth > 1 ? depth / 2 : 1;
	}
	return true;
}

static void drop_array(struct cu_object *object)
{
	struct array *array = (struct array *)object;

	for (unsigned int i = 0; i < LEVELS_MAX; i++)
		if (array->level[i] != NULL)
			cu_drop(&array->level[i]->object);
	free(array);
}

static CUresult make(const char *call, struct array **out, const struct descriptor *descriptor,
		     unsigned int levels)
{
	struct cu_object *object;
	struct array *array;
	uint64_t bytes;
	CUresult ret = cu_unsafe();

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || descriptor == NULL || levels == 0 || levels > LEVELS_MAX ||
	    !measure(descriptor, levels, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	ret = cu_make(call, CU_ARRAY, sizeof(*array), &object);
	if (ret != CUDA_SUCCESS)
		return ret;
	array = (struct array *)object;
	array->descriptor = *descriptor;
	array->levels = levels;
	array->needs = bytes;
	object->bytes = (descriptor->flags & (SPARSE | DEFERRED)) != 0 ? 0 : bytes;
	object->drop = drop_array;
	ret = cu_keep(object);
	if (ret == CUDA_SUCCESS)
		*out = array;
	return ret;
}

SIM_API CUresult cuArray3DCreate_v2(struct array **out, const struct descriptor *descriptor)
{
	return make(__func__, out, descriptor, 1);
}

SIM_API CUresult cuArrayCreate_v2(struct array **out, const struct descriptor_2d *flat)
{
	struct descriptor descriptor;

	if (flat == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	descriptor = (struct descriptor){ flat->width, flat->height, 0, flat->format, flat->channels, 0 };
	return make(__func__, out, &descriptor, 1);
}

SIM_API CUresult cuMipmappedArrayCreate(struct array **out, const struct descriptor *descriptor,
					unsigned int levels)
{
	return make(__func__, out, descriptor, levels);
}

SIM_API CUresult cuArrayDestroy(struct array *array)
{
	return cu_end(__func__, CU_ARRAY, cu_key(array), CUDA_ERROR_INVALID_HANDLE);
}

SIM_API CUresult cuMipmappedArrayDestroy(struct array *array)
{
	return cu_end(__func__, CU_ARRAY, cu_key(array), CUDA_ERROR_INVALID_HANDLE);
}

static CUresult find(const char *call, const struct array *handle, struct array **out)
{
	CUresult ret = cu_enter(call);

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	*out = (struct array *)cu_find(CU_ARRAY, cu_key(handle));
	cu_unlock();
	return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* A level is an array of its own that takes no memory: the mipmap has it. */
SIM_API CUresult cuMipmappedArrayGetLevel(struct array **out, struct array *handle, unsigned int level)
{
	struct array *array;
	CUresult ret = find(__func__, handle, &array);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || level >= array->levels)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	if (array->level[level] == NULL) {
		struct array *one = calloc(1, sizeof(*one));

		if (one != NULL) {
			one->object.kind = CU_ARRAY;
			one->object.drop = drop_array;
			one->descriptor = array->descriptor;
			one->descriptor.width = array->descriptor.width >> level;
			one->descriptor.height = array->descriptor.height >> level;
			one->levels = 1;
			cu_add(&one->object);
			array->level[level] = one;
		}
	}
	*out = array->level[level];
	cu_unlock();
	return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API CUresult cuArray3DGetDescriptor_v2(struct descriptor *out, struct array *handle)
{
	struct array *array;
	CUresult ret = find(__func__, handle, &array);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = array->descriptor;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuArrayGetDescriptor_v2(struct descriptor_2d *out, struct array *handle)
{
	struct array *array;
	CUresult ret = find(__func__, handle, &array);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (struct descriptor_2d){ array->descriptor.width, array->descriptor.height,
				       array->descriptor.format, array->descriptor.channels };
	return CUDA_SUCCESS;
}

static CUresult requirements(const char *call, struct requirements *out, const struct array *handle)
{
	struct array *array;
	CUresult ret = find(call, handle, &array);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (struct requirements){ .bytes = array->needs, .alignment = ALIGNMENT };
	return CUDA_SUCCESS;
}

SIM_API CUresult cuArrayGetMemoryRequirements(struct requirements *out, struct array *array,
					      CUdevice device)
{
	(void)device;
	return requirements(__func__, out, array);
}

SIM_API CUresult cuMipmappedArrayGetMemoryRequirements(struct requirements *out, struct array *array,
						       CUdevice device)
{
	(void)device;
	return requirements(__func__, out, array);
}
