/* hooks.h - the functions of the driver that the limiter stands in or calls. */
#ifndef EDGEGPU_LIMITER_HOOKS_H
#define EDGEGPU_LIMITER_HOOKS_H

#include "cuda.h"
#include "driver.h"

/* Called, not hooked. */
CUresult cuCtxGetCurrent(CUcontext *out);
CUresult cuCtxGetDevice(CUdevice *out);
CUresult cuDeviceGetUuid(struct CUuuid *out, CUdevice device);
CUresult cuDeviceGetUuid_v2(struct CUuuid *out, CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active);

/* cuda_memory.c */
CUresult cuMemAlloc(CUdeviceptr_v1 *out, unsigned int bytes);
CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes);
CUresult cuMemAllocPitch(CUdeviceptr_v1 *out, unsigned int *pitch, unsigned int width,
			 unsigned int height, unsigned int element);
CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
			    unsigned int element);
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags);
CUresult cuMemFree(CUdeviceptr_v1 at);
CUresult cuMemFree_v2(CUdeviceptr at);

/* cuda_pool.c */
CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
				      CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr at, CUstream stream);

/* cuda_array.c */
CUresult cuArrayCreate(CUarray *out, const struct CUarray_descriptor_v1 *wanted);
CUresult cuArrayCreate_v2(CUarray *out, const struct CUarray_descriptor *wanted);
CUresult cuArray3DCreate(CUarray *out, const struct CUarray3d_descriptor_v1 *wanted);
CUresult cuArray3DCreate_v2(CUarray *out, const struct CUarray3d_descriptor *wanted);
CUresult cuArrayDestroy(CUarray array);
CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const struct CUarray3d_descriptor *wanted,
				unsigned int levels);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array);

/* cuda_virtual.c */
CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
		     const struct CUmem_allocation_prop *prop, unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *at);
CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr at, size_t bytes);

/* cuda_context.c */
CUresult cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v3(CUcontext *out, void *affinity, int count, unsigned int flags,
			CUdevice device);
CUresult cuCtxCreate_v4(CUcontext *out, void *params, unsigned int flags, CUdevice device);
CUresult cuCtxDestroy(CUcontext context);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuDevicePrimaryCtxReset(CUdevice device);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);

/* cuda_answer.c */
CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total);
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
CUresult cuDeviceTotalMem(unsigned int *out, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice device);

/* cuda_lookup.c */
CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags,
			     int *status);

#endif
