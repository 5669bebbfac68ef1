/* cuda_graph_nodes.c - graphs are made and filled; a node that allocates has its address at once. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "cuda_graph.h"
#include "cuda_graph_params.h"

SIM_API CUresult cuGraphCreate(struct cu_graph **out, unsigned int flags)
{
	CUresult ret = cu_enter(__func__);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	*out = cu_graph_new(CU_GRAPH);
	cu_unlock();
	return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API CUresult cuGraphDestroy(struct cu_graph *graph)
{
	return cu_end(__func__, CU_GRAPH, cu_key(graph), CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuGraphClone(struct cu_graph **out, struct cu_graph *graph)
{
	return cu_graph_copied(__func__, out, graph, CU_GRAPH);
}

static CUresult add(const char *call, struct cu_node **out, const struct cu_graph *handle,
		    struct cu_node node)
{
	CUresult ret = cu_enter(call);
	struct cu_graph *graph;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	graph = (struct cu_graph *)cu_find(CU_GRAPH, cu_key(handle));
	ret = graph == NULL || out == NULL ? CUDA_ERROR_INVALID_VALUE : cu_graph_add(graph, node, out);
	cu_unlock();
	return ret;
}

static CUresult add_kernel(const char *call, struct cu_node **out, struct cu_graph *graph,
			   const struct kernel_params *params)
{
	struct cu_node node = { .kind = NODE_KERNEL };

	if (params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (!cu_kernel_ns(params->function, params->arguments, &node.ns))
		return CUDA_ERROR_INVALID_HANDLE;
	return add(call, out, graph, node);
}

static CUresult add_alloc(const char *call, struct cu_node **out, struct cu_graph *graph,
			  struct alloc_params *params)
{
	struct cu_node node = { .kind = NODE_ALLOC };
	CUresult ret;

	if (params == NULL || params->bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	node.dev = cu_dev_at(params->location[1]);
	node.bytes = params->bytes;
	if (node.dev == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	cu_lock();
	node.key = cu_addresses(node.bytes, 2 * SIM_MIB);
	cu_unlock();
	ret = add(call, out, graph, node);
	if (ret == CUDA_SUCCESS)
		params->address = node.key;
	return ret;
}

static CUresult add_child(const char *call, struct cu_node **out, struct cu_graph *graph,
			  const struct cu_graph *handle)
{
	struct cu_node node = { .kind = NODE_GRAPH };
	struct cu_graph *child;

	cu_lock();
	child = (struct cu_graph *)cu_find(CU_GRAPH, cu_key(handle));
	if (child != NULL)
		node.child = cu_graph_copy(child, CU_GRAPH);
	cu_unlock();
	return node.child == NULL ? CUDA_ERROR_INVALID_VALUE : add(call, out, graph, node);
}

SIM_API CUresult cuGraphAddKernelNode(struct cu_node **out, struct cu_graph *graph, const void *after,
				      size_t count, const struct kernel_params *params)
{
	(void)after;
	(void)count;
	return add_kernel(__func__, out, graph, params);
}

SIM_API CUresult cuGraphAddKernelNode_v2(struct cu_node **out, struct cu_graph *graph,
					 const void *after, size_t count,
					 const struct kernel_params *params)
{
	(void)after;
	(void)count;
	return add_kernel(__func__, out, graph, params);
}

SIM_API CUresult cuGraphAddMemAllocNode(struct cu_node **out, struct cu_graph *graph, const void *after,
					size_t count, struct alloc_params *params)
{
	(void)after;
	(void)count;
	return add_alloc(__func__, out, graph, params);
}

SIM_API CUresult cuGraphAddMemFreeNode(struct cu_node **out, struct cu_graph *graph, const void *after,
				       size_t count, CUdeviceptr at)
{
	(void)after;
	(void)count;
	return add(__func__, out, graph, (struct cu_node){ .kind = NODE_FREE, .key = at });
}

SIM_API CUresult cuGraphAddEmptyNode(struct cu_node **out, struct cu_graph *graph, const void *after,
				     size_t count)
{
	(void)after;
	(void)count;
	return add(__func__, out, graph, (struct cu_node){ .kind = NODE_EMPTY });
}

SIM_API CUresult cuGraphAddHostNode(struct cu_node **out, struct cu_graph *graph, const void *after,
				    size_t count, const struct host_params *params)
{
	(void)after;
	(void)count;
	if (params == NULL || params->call == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return add(__func__, out, graph, (struct cu_node){ .kind = NODE_HOST, .call = params->call,
							   .data = params->data });
}

SIM_API CUresult cuGraphAddMemcpyNode(struct cu_node **out, struct cu_graph *graph, const void *after,
				      size_t count, const void *params, CUcontext ctx)
{
	(void)after;
	(void)count;
	(void)ctx;
	if (params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return add(__func__, out, graph, (struct cu_node){ .kind = NODE_MEMCPY });
}

SIM_API CUresult cuGraphAddMemsetNode(struct cu_node **out, struct cu_graph *graph, const void *after,
				      size_t count, const void *params, CUcontext ctx)
{
	(void)after;
	(void)count;
	(void)ctx;
	if (params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return add(__func__, out, graph, (struct cu_node){ .kind = NODE_MEMSET });
}

SIM_API CUresult cuGraphAddChildGraphNode(struct cu_node **out, struct cu_graph *graph,
					  const void *after, size_t count, struct cu_graph *child)
{
	(void)after;
	(void)count;
	return add_child(__func__, out, graph, child);
}

static CUresult add_any(const char *call, struct cu_node **out, struct cu_graph *graph,
			struct node_params *params)
{
	if (params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	switch (params->kind) {
	case NODE_KERNEL:
		return add_kernel(call, out, graph, &params->kernel);
	case NODE_ALLOC:
		return add_alloc(call, out, graph, &params->alloc);
	case NODE_FREE:
		return add(call, out, graph, (struct cu_node){ .kind = NODE_FREE, .key = params->free });
	case NODE_GRAPH:
		return add_child(call, out, graph, params->graph);
	case NODE_HOST:
		return add(call, out, graph, (struct cu_node){ .kind = NODE_HOST, .data = params->host.data,
							       .call = params->host.call });
	case NODE_MEMCPY:
	case NODE_MEMSET:
	case NODE_EMPTY:
		return add(call, out, graph, (struct cu_node){ .kind = params->kind });
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

SIM_API CUresult cuGraphAddNode(struct cu_node **out, struct cu_graph *graph, const void *after,
				size_t count, struct node_params *params)
{
	(void)after;
	(void)count;
	return add_any(__func__, out, graph, params);
}

SIM_API CUresult cuGraphAddNode_v2(struct cu_node **out, struct cu_graph *graph, const void *after,
				   const void *edges, size_t count, struct node_params *params)
{
	(void)after;
	(void)edges;
	(void)count;
	return add_any(__func__, out, graph, params);
}

SIM_API CUresult cuGraphAddNode_v3(struct cu_node **out, struct cu_graph *graph, const void *after,
				   const void *edges, size_t count, struct node_params *params)
{
	(void)after;
	(void)edges;
	(void)count;
	return add_any(__func__, out, graph, params);
}
