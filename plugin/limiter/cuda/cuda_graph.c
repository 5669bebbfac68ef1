/* cuda_graph.c - memory of graphs: taken when one is launched or uploaded, kept for all graphs of the
 * device until it is trimmed. An allocation in a capture is such a node, too.
 *
 * What all graphs of a device hold is one account (cuda_account.c). A launch reserves all that the
 * graph can take; where that does not fit, it reserves less what it can certainly use again: graphs of
 * one stream run one after the other and share what each frees itself; a graph that frees what it
 * left behind when it is launched again has that. Else what no graph uses is given back first.
 *
 * Several threads that launch graphs at once may find the same memory to use again; the account then
 * shows more than the limit, and nothing is given until it is below. */
#include "account.h"
#include "gpu_time.h"
#include "cuda_graph.h"

#define AUTO_FREE 1u			/* a flag of an executable: its next launch frees what is left */

struct graph_launch {
	unsigned int count;
	struct ledger_entry parts[FOOTPRINTS_MAX];	/* bytes: freed inside; of: outliving; by card */
	struct charge charges[FOOTPRINTS_MAX];
};

static CUdevice device_of(const struct ledger_entry *part)
{
	return (CUdevice)(part->references >> 1);
}

/* Each card of an executable has the handle's next number as its key. Card -1: one that gives nothing. */
static bool put_part(struct process *own, CUgraphExec exec, unsigned int number, int card,
		     const struct footprint *found, unsigned long long flags)
{
	bool fits = ledger_put((struct ledger_entry){
		.key = (uintptr_t)exec + number, .kind = LEDGER_EXECUTABLE, .bytes = found->inside,
		.of = found->outliving, .card = (int16_t)card,
		.references = (unsigned int)found->device << 1 | (flags & AUTO_FREE) });

	if (fits)
		__atomic_add_fetch(&own->executables, 1, __ATOMIC_RELEASE);
	return fits;
}

/* The driver does not say what is in the graph: it takes of the current device, as one byte, which has to fit.
 * What it really takes counts after its launch. */
static int unseen(struct footprint found[FOOTPRINTS_MAX], int count)
{
	CUcontext context;
	CUdevice device = -1;
	int i;

	if (count < 0 || charge_current_place(&context, &device) == NULL)
		return -1;
	for (i = 0; i < count && found[i].device != device; i++)
		;
	if (i < count)
		return count;
	if (count == FOOTPRINTS_MAX)
		return -1;
	found[count] = (struct footprint){ device, 1, 0 };
	return count + 1;
}

/* False: it takes memory that cannot be counted, and so it is not launched. */
static bool learn(CUgraphExec exec, CUgraph graph, unsigned long long flags)
{
	struct footprint found[FOOTPRINTS_MAX];
	struct process *own = process_own();
	bool told = true;
	int count = own != NULL ? graph_footprints(graph, found, &told) : -1, known = 0;

	if (!told)
		count = unseen(found, count);
	for (; known < count; known++) {
		struct card *card = charge_device_card(found[known].device);

		if (card == NULL || card_index(card) < 0)
			break;
		account_open(LEDGER_GRAPHS, (uint64_t)found[known].device, card_index(card), 0);
		if (!put_part(own, exec, (unsigned int)known, card_index(card), &found[known], flags))
			break;
	}
	if (known != count && own != NULL)
		put_part(own, exec, known > 0 ? (unsigned int)known : 0, -1, &(struct footprint){ 0 }, flags);
	return known == count;
}

static void look_up(struct graph_launch *launch, CUgraphExec exec, bool take)
{
	struct process *own = process_own();
	struct ledger_entry *part = launch->parts;

	launch->count = 0;
	if (own == NULL || __atomic_load_n(&own->executables, __ATOMIC_ACQUIRE) == 0)
		return;
	while (launch->count < FOOTPRINTS_MAX &&
	       (take ? ledger_take(LEDGER_EXECUTABLE, (uintptr_t)exec + launch->count, part) :
		ledger_get(LEDGER_EXECUTABLE, (uintptr_t)exec + launch->count, part))) {
		launch->count++;
		part++;
	}
	if (take)
		__atomic_sub_fetch(&own->executables, launch->count, __ATOMIC_RELEASE);
}

static struct reused *find_reused(struct process *own, uint64_t key, int card)
{
	for (int i = 0; i < REUSED_MAX; i++)
		if (own->reused[i].key == key && own->reused[i].card == card)
			return &own->reused[i];
	return NULL;
}

static uint64_t reusable(uint64_t key, int card, uint64_t most)
{
	struct process *own = process_own();
	struct reused *reused;
	uint64_t bytes;

	mutex_lock(&own->graphs);
	reused = find_reused(own, key, card);
	bytes = reused != NULL ? reused->bytes : 0;
	mutex_unlock(&own->graphs);
	return bytes < most ? bytes : most;
}

static void remember(uint64_t key, int card, uint64_t bytes)
{
	struct process *own = process_own();
	struct reused *reused;

	if (bytes == 0)
		return;
	mutex_lock(&own->graphs);
	reused = find_reused(own, key, card);
	if (reused == NULL) {
		reused = &own->reused[own->reused_next++ % REUSED_MAX];
		*reused = (struct reused){ key, 0, card };
	}
	if (bytes > reused->bytes)
		reused->bytes = bytes;
	mutex_unlock(&own->graphs);
}

static bool reserve(struct charge *charge, const struct ledger_entry *part, CUgraphExec exec,
		    uint64_t stream)
{
	struct card *card = charge_indexed_card(part->card);
	uint64_t all = part->bytes + part->of, again;

	if (card == NULL) {
		usage_refused(-1);
		return false;
	}
	if (charge_fits(charge, card, all))
		return true;
	if (usage_total(card_index(card)) <= limits_room(card)) {
		again = reusable(stream, part->card, part->bytes);
		if ((part->references & AUTO_FREE) != 0)
			again += reusable((uintptr_t)exec, part->card, part->of);
		if (charge_fits(charge, card, all - again))
			return true;
	}
	return charge_card(charge, card, all);
}

static void give_back(const struct graph_launch *launch, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		usage_release(card_index(launch->charges[i].card), launch->charges[i].bytes);
}

/* The default streams of threads have one name for all. */
static uint64_t stream_key(CUstream stream, bool per_thread)
{
	if (stream == PER_THREAD_STREAM || (per_thread && stream == NULL))
		return (uintptr_t)&charge_depth;
	return (uintptr_t)stream;
}

static bool capturing(CUstream stream, bool per_thread)
{
	int status = 0;

	return (per_thread ? CALL(cuStreamIsCapturing_ptsz, stream, &status) :
		CALL(cuStreamIsCapturing, stream, &status)) == CUDA_SUCCESS && status != 0;
}

/* False: it does not fit. */
static bool begin(struct graph_launch *launch, CUgraphExec exec, CUstream stream, bool per_thread)
{
	look_up(launch, exec, false);
	if (launch->count > 0 && capturing(stream, per_thread))
		launch->count = 0;	/* it becomes a node, and takes nothing yet */
	for (unsigned int i = 0; i < launch->count; i++)
		if (!reserve(&launch->charges[i], &launch->parts[i], exec,
			     stream_key(stream, per_thread))) {
			give_back(launch, i);
			return false;
		}
	return true;
}

static CUresult end(const struct graph_launch *launch, CUresult ret, CUgraphExec exec, uint64_t stream)
{
	for (unsigned int i = 0; i < launch->count; i++) {
		const struct ledger_entry *part = &launch->parts[i];

		account_settle(&launch->charges[i], LEDGER_GRAPHS, (uint64_t)device_of(part));
		if (ret != CUDA_SUCCESS)
			continue;
		remember(stream, part->card, part->bytes);
		if ((part->references & AUTO_FREE) != 0)
			remember((uintptr_t)exec, part->card, part->of);
	}
	if (launch->count > 0)
		accounts_moved();
	return ret;
}

#define UPLOAD(name, per_thread)                                                                  \
	struct graph_launch launch;                                                               \
                                                                                                  \
	if (NESTED)                                                                               \
		return DRIVER(name)(exec, stream);                                                \
	if (!begin(&launch, exec, stream, per_thread))                                            \
		return CUDA_ERROR_OUT_OF_MEMORY;                                                  \
	return end(&launch, CALL(name, exec, stream), exec, stream_key(stream, per_thread))

/* It waits for its share of the time first, while it has reserved nothing. */
#define LAUNCH(name, per_thread)                                                                  \
	struct graph_launch launch;                                                               \
	struct launch timed;                                                                      \
	CUresult ret;                                                                             \
                                                                                                  \
	if (NESTED)                                                                               \
		return DRIVER(name)(exec, stream);                                                \
	gpu_time_begin(&timed, stream, per_thread);                                               \
	if (!begin(&launch, exec, stream, per_thread))                                            \
		return gpu_time_end(&timed, CUDA_ERROR_OUT_OF_MEMORY);                            \
	ret = gpu_time_end(&timed, CALL(name, exec, stream));                                     \
	return end(&launch, ret, exec, stream_key(stream, per_thread))

CUresult EXPORT cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	LAUNCH(cuGraphLaunch, false);
}

CUresult EXPORT cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	LAUNCH(cuGraphLaunch_ptsz, true);
}

CUresult EXPORT cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	UPLOAD(cuGraphUpload, false);
}

CUresult EXPORT cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
	UPLOAD(cuGraphUpload_ptsz, true);
}

static CUresult destroy(CUgraphExec exec)
{
	struct graph_launch launch;
	CUresult ret;

	look_up(&launch, exec, true);
	ret = CALL(cuGraphExecDestroy, exec);
	if (ret == CUDA_SUCCESS || launch.count == 0)
		return ret;
	for (unsigned int i = 0; i < launch.count; i++)
		ledger_put(launch.parts[i]);
	__atomic_add_fetch(&process_own()->executables, launch.count, __ATOMIC_RELEASE);
	return ret;
}

CUresult EXPORT cuGraphExecDestroy(CUgraphExec exec)
{
	return NESTED || process_own() == NULL ? DRIVER(cuGraphExecDestroy)(exec) : destroy(exec);
}

/* The driver may take the memory here already: then it is here that it may not fit. */
static CUresult instantiated(CUresult ret, CUgraphExec *out, CUgraphExec exec, CUgraph graph, unsigned long long flags)
{
	struct graph_launch launch;
	struct card *full = NULL;

	if (ret != CUDA_SUCCESS) {
		*out = exec;
		return ret;
	}
	if (!learn(exec, graph, flags))
		full = limits_unknown();
	look_up(&launch, exec, false);
	for (unsigned int i = 0; i < launch.count && full == NULL; i++) {
		launch.charges[i] = (struct charge){ .card = charge_indexed_card(launch.parts[i].card) };
		if (!account_settle(&launch.charges[i], LEDGER_GRAPHS,
				    (uint64_t)device_of(&launch.parts[i])))
			full = launch.charges[i].card;
	}
	*out = full == NULL ? exec : NULL;
	if (full == NULL)
		return ret;
	destroy(exec);
	account_make_room(full);
	return charge_refused(full);
}

#define INSTANTIATE(name, flags, ...)                                                             \
	do {                                                                                      \
		CUgraphExec exec = *out;                                                          \
		CUresult ret = CALL(name, &exec, __VA_ARGS__);                                    \
		return instantiated(ret, out, exec, graph, flags);                                \
	} while (0)

CUresult EXPORT cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *node, char *log,
				   size_t bytes)
{
	if (NESTED || out == NULL)
		return DRIVER(cuGraphInstantiate)(out, graph, node, log, bytes);
	INSTANTIATE(cuGraphInstantiate, 0, graph, node, log, bytes);
}

CUresult EXPORT cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *node, char *log,
				      size_t bytes)
{
	if (NESTED || out == NULL)
		return DRIVER(cuGraphInstantiate_v2)(out, graph, node, log, bytes);
	INSTANTIATE(cuGraphInstantiate_v2, 0, graph, node, log, bytes);
}

CUresult EXPORT cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	if (NESTED || out == NULL)
		return DRIVER(cuGraphInstantiateWithFlags)(out, graph, flags);
	INSTANTIATE(cuGraphInstantiateWithFlags, flags, graph, flags);
}

#define INSTANTIATE_WITH_PARAMS(name)                                                             \
	do {                                                                                      \
		struct CUgraph_instantiate_params copy;                                           \
		CUgraphExec exec;                                                                 \
		CUresult ret;                                                                     \
		if (NESTED || out == NULL || params == NULL)                                      \
			return DRIVER(name)(out, graph, params);                                  \
		copy = READ_ONCE(params);                                                         \
		exec = *out;                                                                      \
		ret = CALL(name, &exec, graph, &copy);                                            \
		params->error_node = copy.error_node;                                             \
		params->result = copy.result;                                                     \
		return instantiated(ret, out, exec, graph, copy.flags);                           \
	} while (0)

CUresult EXPORT cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph,
					     struct CUgraph_instantiate_params *params)
{
	INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams);
}

CUresult EXPORT cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph graph,
						  struct CUgraph_instantiate_params *params)
{
	INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams_ptsz);
}

/* An executable that became another graph's. */
static CUresult updated(CUresult ret, bool nested, CUgraphExec exec, CUgraph graph)
{
	struct graph_launch before;
	unsigned int flags;

	if (ret != CUDA_SUCCESS || nested || process_own() == NULL)
		return ret;
	look_up(&before, exec, true);
	flags = before.count > 0 ? before.parts[0].references & AUTO_FREE : 0;
	learn(exec, graph, flags);
	return ret;
}

CUresult EXPORT cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, int *result)
{
	bool nested = NESTED;

	return updated(CALL(cuGraphExecUpdate, exec, graph, node, result), nested, exec, graph);
}

CUresult EXPORT cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *result)
{
	bool nested = NESTED;

	return updated(CALL(cuGraphExecUpdate_v2, exec, graph, result), nested, exec, graph);
}

CUresult EXPORT cuDeviceGraphMemTrim(CUdevice device)
{
	CUresult ret = CALL(cuDeviceGraphMemTrim, device);

	if (ret == CUDA_SUCCESS && !NESTED)
		accounts_renew();
	return ret;
}
