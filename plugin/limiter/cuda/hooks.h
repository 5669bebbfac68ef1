/* hooks.h - the functions of the driver that the limiter stands in or calls. */
#ifndef EDGEGPU_LIMITER_HOOKS_H
#define EDGEGPU_LIMITER_HOOKS_H

#include "cuda.h"
#include "driver.h"

/* Called, not hooked. */
CUresult cuCtxGetCurrent(CUcontext *out);
CUresult cuCtxGetDevice(CUdevice *out);
CUresult cuDeviceGetCount(int *out);
CUresult cuDeviceGetUuid(struct CUuuid *out, CUdevice device);
CUresult cuDeviceGetUuid_v2(struct CUuuid *out, CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *out);
CUresult cuCtxGetLimit(size_t *out, int which);
CUresult cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx green);
CUresult cuDeviceGetAttribute(int *out, int which, CUdevice device);
CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device);
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int which, void *out);
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int which, void *out);
CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel kernel);
CUresult cuCheckpointProcessGetState(int pid, int *out);
CUresult cuKernelGetAttribute(int *out, int which, CUkernel kernel, CUdevice device);
CUresult cuFuncGetAttribute(int *out, int which, void *function);
CUresult cuModuleGetLoadingMode(int *out);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr at);
CUresult cuPointerGetAttribute(void *out, int which, CUdeviceptr at);
CUresult cuStreamGetCtx(CUstream stream, CUcontext *out);
CUresult cuStreamIsCapturing(CUstream stream, int *status);
CUresult cuStreamIsCapturing_ptsz(CUstream stream, int *status);
CUresult cuStreamGetCaptureInfo(CUstream stream, int *status, uint64_t *id);
CUresult cuThreadExchangeStreamCaptureMode(int *mode);
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
CUresult cuGraphNodeGetType(CUgraphNode node, int *type);
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, struct CUmem_alloc_node *out);
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *out);
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *out);
CUresult cuEventCreate(CUevent *out, unsigned int flags);
CUresult cuEventQuery(CUevent event);
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to);

/* cuda_export.c */
CUresult cuGetExportTable(const void **out, const struct CUuuid *id);

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
CUresult cuMemPoolCreate(CUmemoryPool *out, const struct CUmem_pool_props *props);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep);
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value);

/* cuda_graph.c */
CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *node, char *log,
			    size_t bytes);
CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *node, char *log,
			       size_t bytes);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags);
CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph,
				      struct CUgraph_instantiate_params *params);
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph graph,
					   struct CUgraph_instantiate_params *params);
CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, int *result);
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *result);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream);
CUresult cuGraphUpload(CUgraphExec exec, CUstream stream);
CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream);
CUresult cuDeviceGraphMemTrim(CUdevice device);

/* cuda_module.c */
CUresult cuModuleLoad(CUmodule *out, const char *path);
CUresult cuModuleLoadData(CUmodule *out, const void *image);
CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int number, int *options,
			    void **values);
CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuLibraryLoadData(CUlibrary *out, const void *code, int *jit, void **jit_values,
			   unsigned int jit_count, int *options, void **values, unsigned int number);
CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, int *jit, void **jit_values,
			       unsigned int jit_count, int *options, void **values,
			       unsigned int number);
CUresult cuLibraryUnload(CUlibrary library);
CUresult cuLibraryGetModule(CUmodule *out, CUlibrary library);
CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name);
CUresult cuLibraryGetGlobal(CUdeviceptr *out, size_t *bytes, CUlibrary library, const char *name);
CUresult cuLibraryGetManaged(CUdeviceptr *out, size_t *bytes, CUlibrary library, const char *name);
CUresult cuKernelGetFunction(void **out, CUkernel kernel);
CUresult cuModuleGetFunction(void **out, CUmodule module, const char *name);

/* cuda_checkpoint.c */
CUresult cuCheckpointProcessCheckpoint(int pid, struct CUcheckpointArgs *args);
CUresult cuCheckpointProcessRestore(int pid, void *args);

/* cuda_setting.c */
CUresult cuCtxSetLimit(int which, size_t value);

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
CUresult cuMemMapArrayAsync(struct CUarray_map *list, unsigned int count, CUstream stream);
CUresult cuMemMapArrayAsync_ptsz(struct CUarray_map *list, unsigned int count, CUstream stream);

/* cuda_binding.c */
CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
				      unsigned long long flags);
CUresult cuMemGetHandleForAddressRange(void *out, CUdeviceptr at, size_t bytes, int type,
				       unsigned long long flags);
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t where,
			    CUmemGenericAllocationHandle handle, size_t offset, size_t bytes,
			    unsigned long long flags);
CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t where,
			       CUmemGenericAllocationHandle handle, size_t offset, size_t bytes,
			       unsigned long long flags);
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t where, CUdeviceptr at, size_t bytes,
			     unsigned long long flags);
CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t where,
				CUdeviceptr at, size_t bytes, unsigned long long flags);
CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId endpoint, CUdevice device, uint64_t where,
				  CUmemGenericAllocationHandle handle, uint64_t offset, uint64_t bytes,
				  unsigned long long flags);
CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId endpoint, CUdevice device, uint64_t where, void *at,
				   uint64_t bytes, unsigned long long flags);

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t where, size_t bytes);

/* cuda_context.c */
CUresult cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v3(CUcontext *out, void *affinity, int count, unsigned int flags,
			CUdevice device);
CUresult cuCtxCreate_v4(CUcontext *out, struct CUctx_create_params *params, unsigned int flags,
			CUdevice device);
CUresult cuGLCtxCreate(CUcontext *out, unsigned int flags, CUdevice device);
CUresult cuGLCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device);
CUresult cuVDPAUCtxCreate(CUcontext *out, unsigned int flags, CUdevice device, uint32_t display,
			  void *find);
CUresult cuVDPAUCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device, uint32_t display,
			     void *find);
CUresult cuCtxAttach(CUcontext *out, unsigned int flags);
CUresult cuCtxDetach(CUcontext context);
CUresult cuCtxDestroy(CUcontext context);
CUresult cuCtxDestroy_v2(CUcontext context);

/* cuda_primary.c */
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuDevicePrimaryCtxReset(CUdevice device);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult cuGreenCtxCreate(CUgreenCtx *out, void *description, CUdevice device, unsigned int flags);
CUresult cuGreenCtxDestroy(CUgreenCtx green);

/* cuda_answer.c */
CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total);
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
CUresult cuDeviceTotalMem(unsigned int *out, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice device);

/* cuda_mps.c */
CUresult cuInit(unsigned int flags);

/* cuda_launch.c */
CUresult cuLaunch(void *function);
CUresult cuLaunchGrid(void *function, int width, int height);
CUresult cuLaunchGridAsync(void *function, int width, int height, CUstream stream);
CUresult cuLaunchKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
			unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			CUstream stream, void **params, void **extra);
CUresult cuLaunchKernel_ptsz(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
			     unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			     CUstream stream, void **params, void **extra);
CUresult cuLaunchKernelEx(const struct CUlaunch_config *config, void *function, void **params,
			  void **extra);
CUresult cuLaunchKernelEx_ptsz(const struct CUlaunch_config *config, void *function, void **params,
			       void **extra);
CUresult cuLaunchCooperativeKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
				   unsigned int bx, unsigned int by, unsigned int bz,
				   unsigned int shared, CUstream stream, void **params);
CUresult cuLaunchCooperativeKernel_ptsz(void *function, unsigned int gx, unsigned int gy,
					unsigned int gz, unsigned int bx, unsigned int by,
					unsigned int bz, unsigned int shared, CUstream stream,
					void **params);
CUresult cuLaunchCooperativeKernelMultiDevice(struct CUlaunch_params *list, unsigned int count,
					      unsigned int flags);

/* cuda_capture.c */
CUresult cuStreamBeginCapture(CUstream stream);
CUresult cuStreamBeginCapture_ptsz(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode);
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const void *edges,
				     size_t count, int mode);
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const void *edges,
					  size_t count, int mode);
CUresult cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, void *function, void *data);
CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph, void *function, void *data);
CUresult cuStreamBeginCaptureToCig(CUstream stream, void *params);
CUresult cuStreamBeginCaptureToCig_ptsz(CUstream stream, void *params);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *out);
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *out);
CUresult cuStreamEndCaptureToCig(CUstream stream);
CUresult cuStreamEndCaptureToCig_ptsz(CUstream stream);

/* cuda_wait.c */
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamSynchronize_ptsz(CUstream stream);
CUresult cuCtxSynchronize(void);
CUresult cuCtxSynchronize_v2(CUcontext context);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream);
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags);
CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamQuery_ptsz(CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);
CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags);
CUresult cuStreamDestroy(CUstream stream);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t bytes);

/* cuda_lookup.c */
CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags,
			     int *status);

#endif
