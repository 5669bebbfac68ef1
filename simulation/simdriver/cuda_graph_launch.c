/* cuda_graph_launch.c - graphs are instantiated and launched.
 *
 * A graph's memory comes from a pool of the device that keeps it until cuDeviceGraphMemTrim. It is taken
 * when the graph is launched, and given back by the graph's own free node, or by cuMemFree. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "cuda_graph.h"

enum { GRAPH_USED = 0, GRAPH_USED_HIGH = 1, GRAPH_RESERVED = 2, GRAPH_RESERVED_HIGH = 3 };

struct instantiate_params {		/* CUDA_GRAPH_INSTANTIATE_PARAMS */
	uint64_t flags;
	CUstream upload;
	struct cu_node *error_node;
	int result;
};

SIM_API CUresult cuGraphInstantiate(struct cu_graph **out, struct cu_graph *graph, void *node, char *log,
				    size_t bytes)
{
	(void)node;
	if (log != NULL && bytes > 0)
		*log = '\0';
	return cu_graph_copied(__func__, out, graph, CU_GRAPH_EXEC);
}

SIM_API CUresult cuGraphInstantiate_v2(struct cu_graph **out, struct cu_graph *graph, void *node,
				       char *log, size_t bytes)
{
	return cuGraphInstantiate(out, graph, node, log, bytes);
}

SIM_API CUresult cuGraphInstantiateWithFlags(struct cu_graph **out, struct cu_graph *graph,
					     unsigned long long flags)
{
	(void)flags;
	return cu_graph_copied(__func__, out, graph, CU_GRAPH_EXEC);
}

SIM_API CUresult cuGraphInstantiateWithParams(struct cu_graph **out, struct cu_graph *graph,
					      struct instantiate_params *params)
{
	if (params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	params->error_node = NULL;
	params->result = 0;
	return cu_graph_copied(__func__, out, graph, CU_GRAPH_EXEC);
}

SIM_API CUresult cuGraphExecDestroy(struct cu_graph *exec)
{
	return cu_end(__func__, CU_GRAPH_EXEC, cu_key(exec), CUDA_ERROR_INVALID_VALUE);
}

/* The caller holds the lock. */
static CUresult run_memory(const struct cu_node *node)
{
	struct cu_object *memory = cu_find(CU_MEMORY, node->key);
	struct cu_pool *pool;

	if (node->kind == NODE_FREE) {
		if (memory != NULL)
			cu_drop(memory);
		return memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	if (memory != NULL)		/* of the launch before, not freed yet */
		return CUDA_ERROR_INVALID_VALUE;
	pool = cu_pool_graphs(node->dev);
	if (pool == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return cu_pool_take(pool, node->key, node->bytes);
}

/* Of a launch that fails in the middle nothing stays. */
static CUresult take_memory(const struct cu_graph *graph)
{
	CUresult ret = CUDA_SUCCESS;
	const struct cu_node *n;

	for (n = graph->first; n != NULL && ret == CUDA_SUCCESS; n = n->next) {
		if (n->kind == NODE_ALLOC || n->kind == NODE_FREE)
			ret = run_memory(n);
		else if (n->kind == NODE_GRAPH)
			ret = take_memory(n->child);
		if (ret != CUDA_SUCCESS)
			break;
	}
	for (const struct cu_node *m = graph->first; ret != CUDA_SUCCESS && m != n; m = m->next) {
		struct cu_object *memory = m->kind == NODE_ALLOC ? cu_find(CU_MEMORY, m->key) : NULL;

		if (memory != NULL)
			cu_drop(memory);
	}
	return ret;
}

static CUresult run_nodes(const struct cu_graph *graph, struct cu_stream *stream)
{
	CUresult ret = CUDA_SUCCESS;

	for (const struct cu_node *n = graph->first; n != NULL && ret == CUDA_SUCCESS; n = n->next) {
		if (n->kind == NODE_KERNEL)
			ret = cu_submit(stream, (struct cu_op){ .kind = OP_KERNEL, .ns = n->ns });
		else if (n->kind == NODE_HOST)
			ret = cu_submit(stream, (struct cu_op){ .kind = OP_HOST, .call = n->call,
								.data = n->data });
		else if (n->kind == NODE_GRAPH)
			ret = run_nodes(n->child, stream);
	}
	return ret;
}

static CUresult capture_child(struct cu_stream *stream, const struct cu_graph *graph)
{
	struct cu_node node = { .kind = NODE_GRAPH };

	cu_lock();
	node.child = cu_graph_copy(graph, CU_GRAPH);
	cu_unlock();
	return node.child == NULL ? CUDA_ERROR_OUT_OF_MEMORY : cu_captured(stream, node);
}

SIM_API CUresult cuGraphLaunch(struct cu_graph *handle, CUstream to)
{
	struct cu_stream *stream;
	CUresult ret = cu_enter_stream(__func__, to, &stream);
	struct cu_graph *exec;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	exec = (struct cu_graph *)cu_find(CU_GRAPH_EXEC, cu_key(handle));
	if (exec == NULL)
		ret = CUDA_ERROR_INVALID_VALUE;
	else if (cu_capture_of(stream) == NULL)
		ret = take_memory(exec);
	cu_unlock();
	if (ret != CUDA_SUCCESS)
		return ret;
	return cu_capture_of(stream) != NULL ? capture_child(stream, exec) : run_nodes(exec, stream);
}

SIM_API CUresult cuGraphUpload(struct cu_graph *handle, CUstream to)
{
	struct cu_stream *stream;

	(void)handle;
	return cu_enter_stream(__func__, to, &stream);
}

SIM_API CUresult cuGraphGetNodes(struct cu_graph *handle, struct cu_node **nodes, size_t *count)
{
	CUresult ret = cu_enter(__func__);
	struct cu_graph *graph;
	size_t n = 0;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (count == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	graph = (struct cu_graph *)cu_find(CU_GRAPH, cu_key(handle));
	for (struct cu_node *node = graph != NULL ? graph->first : NULL;
	     nodes != NULL && node != NULL && n < *count; node = node->next)
		nodes[n++] = node;
	if (graph != NULL)
		*count = nodes != NULL ? n : graph->count;
	cu_unlock();
	return graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuGraphNodeGetType(struct cu_node *node, int *out)
{
	if (node == NULL || out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (int)node->kind;
	return cu_enter(__func__);
}

SIM_API CUresult cuDeviceGraphMemTrim(CUdevice index)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	if (dev->graph_pool != NULL)
		cu_pool_trim(dev->graph_pool, 0);
	cu_unlock();
	return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetGraphMemAttribute(CUdevice index, int which, uint64_t *out)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);
	struct cu_pool *pool;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || which < GRAPH_USED || which > GRAPH_RESERVED_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	pool = cu_pool_graphs(dev);
	if (pool != NULL)
		*out = (uint64_t[]){ pool->used, pool->used_high, pool->object.bytes,
				     pool->reserved_high }[which];
	cu_unlock();
	return pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
