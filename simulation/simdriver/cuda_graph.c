/* cuda_graph.c - graphs and their nodes. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "cuda_graph.h"

static void drop_graph(struct cu_object *object)
{
	struct cu_graph *graph = (struct cu_graph *)object;

	while (graph->first != NULL) {
		struct cu_node *node = graph->first;

		graph->first = node->next;
		if (node->child != NULL)
			cu_drop(&node->child->object);
		free(node);
	}
	free(graph);
}

struct cu_graph *cu_graph_new(enum cu_kind kind)
{
	struct cu_graph *graph = calloc(1, sizeof(*graph));

	if (graph == NULL)
		return NULL;
	graph->object.kind = kind;
	graph->object.drop = drop_graph;
	graph->last = &graph->first;
	cu_add(&graph->object);		/* of no bytes: cannot fail */
	return graph;
}

CUresult cu_graph_add(struct cu_graph *graph, struct cu_node node, struct cu_node **out)
{
	struct cu_node *added = malloc(sizeof(*added));

	if (added == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*added = node;
	added->next = NULL;
	*graph->last = added;
	graph->last = &added->next;
	graph->count++;
	if (out != NULL)
		*out = added;
	return CUDA_SUCCESS;
}

struct cu_graph *cu_graph_copy(const struct cu_graph *graph, enum cu_kind kind)
{
	struct cu_graph *copy = cu_graph_new(kind);

	for (const struct cu_node *n = graph->first; n != NULL && copy != NULL; n = n->next) {
		struct cu_node node = *n;

		if (node.child != NULL)
			node.child = cu_graph_copy(node.child, CU_GRAPH);
		if ((n->child != NULL && node.child == NULL) ||
		    cu_graph_add(copy, node, NULL) != CUDA_SUCCESS) {
			cu_drop(&copy->object);
			copy = NULL;
		}
	}
	return copy;
}

CUresult cu_graph_copied(const char *call, struct cu_graph **out, const struct cu_graph *handle, enum cu_kind kind)
{
	CUresult ret = cu_enter(call);
	struct cu_graph *graph;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	graph = (struct cu_graph *)cu_find(CU_GRAPH, cu_key(handle));
	if (out == NULL || graph == NULL)
		ret = CUDA_ERROR_INVALID_VALUE;
	else
		*out = cu_graph_copy(graph, kind);
	cu_unlock();
	return ret == CUDA_SUCCESS && *out == NULL ? CUDA_ERROR_OUT_OF_MEMORY : ret;
}
