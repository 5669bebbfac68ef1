/* cuda_graph.h - how much card memory a graph takes when it runs. */
#ifndef EDGEGPU_LIMITER_CUDA_GRAPH_H
#define EDGEGPU_LIMITER_CUDA_GRAPH_H

#include "charge.h"

/* Of one card. What does not overlap in time has one address, so overlapping addresses count once. */
struct footprint {
	CUdevice device;
	uint64_t inside;		/* bytes that the graph frees itself */
	uint64_t outliving;
};

#define FOOTPRINTS_MAX CARDS_MAX

/* Look through a graph and its child graphs; of how many cards it takes memory, -1: there is no room to
 * know that. told: the driver has said all of it. */
int graph_footprints(CUgraph graph, struct footprint out[FOOTPRINTS_MAX], bool *told);

#endif
