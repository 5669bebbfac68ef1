/* cuda_launch.c - launches: a kernel takes the card for the time that its function says. */
#include "cuda_graph.h"

struct launch_config {			/* CUlaunchConfig */
	unsigned int grid[3], block[3], shared;
	CUstream stream;
	void *attributes;
	unsigned int count;
};

struct cooperative {			/* CUDA_LAUNCH_PARAMS */
	void *function;
	unsigned int grid[3], block[3], shared;
	CUstream stream;
	void **arguments;
};

static CUresult launch(const char *call, CUstream handle, void *function, void **arguments)
{
	struct cu_stream *stream;
	CUresult ret = cu_enter_stream(call, handle, &stream);
	uint64_t ns;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (!cu_kernel_ns(function, arguments, &ns))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!cu_local(stream->object.ctx, (size_t)cu_kernel_local(function)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (cu_capture_of(stream) != NULL)
		return cu_captured(stream, (struct cu_node){ .kind = NODE_KERNEL, .ns = ns });
	return cu_submit(stream, (struct cu_op){ .kind = OP_KERNEL, .ns = ns });
}

static bool empty(const unsigned int grid[3], const unsigned int block[3])
{
	return grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || block[0] == 0 || block[1] == 0 ||
	       block[2] == 0;
}

SIM_API CUresult cuLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y,
				unsigned int grid_z, unsigned int block_x, unsigned int block_y,
				unsigned int block_z, unsigned int shared, CUstream stream,
				void **arguments, void **extra)
{
	unsigned int grid[] = { grid_x, grid_y, grid_z }, block[] = { block_x, block_y, block_z };

	(void)shared;
	(void)extra;
	if (empty(grid, block))
		return CUDA_ERROR_INVALID_VALUE;
	return launch(__func__, stream, function, arguments);
}

SIM_API CUresult cuLaunchCooperativeKernel(void *function, unsigned int grid_x, unsigned int grid_y,
					   unsigned int grid_z, unsigned int block_x,
					   unsigned int block_y, unsigned int block_z,
					   unsigned int shared, CUstream stream, void **arguments)
{
	unsigned int grid[] = { grid_x, grid_y, grid_z }, block[] = { block_x, block_y, block_z };

	(void)shared;
	if (empty(grid, block))
		return CUDA_ERROR_INVALID_VALUE;
	return launch(__func__, stream, function, arguments);
}

SIM_API CUresult cuLaunchKernelEx(const struct launch_config *config, void *function, void **arguments,
				  void **extra)
{
	(void)extra;
	if (config == NULL || empty(config->grid, config->block))
		return CUDA_ERROR_INVALID_VALUE;
	return launch(__func__, config->stream, function, arguments);
}

SIM_API CUresult cuLaunchCooperativeKernelMultiDevice(const struct cooperative *list,
						      unsigned int count, unsigned int flags)
{
	CUresult ret = CUDA_SUCCESS;

	(void)flags;
	if (list == NULL || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; ret == CUDA_SUCCESS && i < count; i++)
		ret = empty(list[i].grid, list[i].block) ? CUDA_ERROR_INVALID_VALUE :
			launch(__func__, list[i].stream, list[i].function, list[i].arguments);
	return ret;
}

SIM_API CUresult cuLaunchGrid(void *function, int width, int height)
{
	if (width <= 0 || height <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	return launch(__func__, NULL, function, NULL);
}

SIM_API CUresult cuLaunch(void *function)
{
	return launch(__func__, NULL, function, NULL);
}

SIM_API CUresult cuLaunchGridAsync(void *function, int width, int height, CUstream stream)
{
	if (width <= 0 || height <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	return launch(__func__, stream, function, NULL);
}
