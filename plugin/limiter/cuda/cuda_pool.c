/* cuda_pool.c - memory in a stream's order, from the card's own pool or one of the program's.
 *
 * A pool counts with all that it holds, used or kept (cuda_account.c). An allocation reserves what it
 * may need at most; then the driver says what the pool holds, and that counts. In a capture nothing
 * is taken: what the graph takes counts where it is launched (cuda_graph.c).
 *
 * A destroyed pool lives on with what was not freed, and answers no more. So what comes from pools
 * that can be destroyed is remembered, and counts by itself then. */
#include "account.h"

#define BUILT_IN 1u			/* references of a pool that cannot be destroyed */

struct order {
	CUstream stream;
	bool per_thread;		/* 0 stands for the thread's own default stream */
};

struct pooled {
	struct charge charge;
	CUmemoryPool pool;
	struct ledger_entry account;	/* of the pool; LEDGER_NONE: the driver does not say what it holds */
	bool capturing;
};

static bool capturing(const struct order *order)
{
	int status = 0;

	return (order->per_thread ? CALL(cuStreamIsCapturing_ptsz, order->stream, &status) :
		CALL(cuStreamIsCapturing, order->stream, &status)) == CUDA_SUCCESS && status != 0;
}

/* The current context's device becomes the stream's. False: it cannot be told. */
static bool device_of(const struct order *order, CUcontext current, CUdevice *device)
{
	CUcontext of = charge_other_context(order->stream, current);
	CUresult ret;

	if (of == NULL || CALL(cuCtxPushCurrent_v2, of) != CUDA_SUCCESS)
		return true;
	ret = CALL(cuCtxGetDevice, device);
	CALL(cuCtxPopCurrent_v2, &of);
	return ret == CUDA_SUCCESS;
}

/* The account of a device's current pool. */
static bool find_current(struct pooled *pooled, CUdevice device, struct card **card)
{
	CUmemoryPool own = NULL;
	uint64_t held, used;

	if (CALL(cuDeviceGetMemPool, &pooled->pool, device) != CUDA_SUCCESS)
		return false;
	if (account_find_pool(pooled->pool, &pooled->account))
		return true;
	*card = charge_device_card(device);
	if (*card == NULL || card_index(*card) < 0 || !account_pool(pooled->pool, &held, &used))
		return false;
	CALL(cuDeviceGetDefaultMemPool, &own, device);
	account_open(LEDGER_POOL, (uintptr_t)pooled->pool, card_index(*card),
		     own == pooled->pool ? BUILT_IN : 0);
	return account_find_pool(pooled->pool, &pooled->account);
}

/* A pool that was not seen being made is mostly a device's own or current one, and not always the current device's.
 * Once in its life: then it has an account. */
static __attribute__((noinline, cold)) void find_owner(struct pooled *pooled, struct card **card)
{
	CUmemoryPool wanted = pooled->pool, own = NULL, used = NULL;
	int count = 0;

	CALL(cuDeviceGetCount, &count);
	for (CUdevice device = 0; device < count; device++) {
		CALL(cuDeviceGetDefaultMemPool, &own, device);
		CALL(cuDeviceGetMemPool, &used, device);
		if (own != wanted && used != wanted)
			continue;
		*card = charge_device_card(device);
		if (*card != NULL && card_index(*card) >= 0)
			account_open(LEDGER_POOL, (uintptr_t)wanted, card_index(*card), own == wanted ? BUILT_IN : 0);
		account_find_pool(wanted, &pooled->account);
		return;
	}
}

/* Of a pool that nobody saw being made the first memory tells where it is. */
static bool on_host(CUdeviceptr at)
{
	unsigned int type = 0, managed = 0;

	return CALL(cuPointerGetAttribute, &type, CU_POINTER_MEMORY_TYPE, at) == CUDA_SUCCESS &&
	       type == CU_MEMORYTYPE_HOST &&
	       CALL(cuPointerGetAttribute, &managed, CU_POINTER_IS_MANAGED, at) == CUDA_SUCCESS &&
	       managed == 0;
}

static bool reserve(struct pooled *pooled, struct card *card, uint64_t bytes,
		    const struct order *order)
{
	uint64_t held, used, kept;

	if (charge_fits(&pooled->charge, card, bytes))
		return true;
	if (pooled->account.kind != LEDGER_NONE && account_pool(pooled->pool, &held, &used) &&
	    usage_total(card_index(card)) <= limits_room(card)) {
		kept = held > used ? held - used : 0;
		if (charge_fits(&pooled->charge, card, bytes > kept ? bytes - kept : 0))
			return true;
	}
	pooled->capturing = capturing(order);
	return pooled->capturing ? charge_fits(&pooled->charge, card, 0) :
	       charge_card(&pooled->charge, card, bytes);
}

static bool begin(struct pooled *pooled, CUmemoryPool pool, uint64_t bytes, const struct order *order);

/* No context is current: with a stream of the program's own the driver needs none. Apart, for it is rare. */
static __attribute__((noinline, cold))
bool begin_elsewhere(struct pooled *pooled, CUmemoryPool pool, uint64_t bytes, const struct order *order)
{
	CUcontext of = charge_other_context(order->stream, NULL), entered = NULL;
	bool fits;

	if (of == NULL)
		return true;
	pooled->charge.why = CALL(cuCtxPushCurrent_v2, of);
	if (pooled->charge.why != CUDA_SUCCESS)
		return false;
	charge_current_card(&entered);
	fits = entered == NULL || begin(pooled, pool, bytes, order);
	CALL(cuCtxPopCurrent_v2, &of);
	return fits;
}

/* pool NULL: the current one of the stream's device. */
static bool begin(struct pooled *pooled, CUmemoryPool pool, uint64_t bytes, const struct order *order)
{
	CUcontext context = NULL;
	CUdevice device = -1;
	struct card *card = charge_current_place(&context, &device);

	*pooled = (struct pooled){ .pool = pool };
	if (card == NULL)
		return context != NULL || begin_elsewhere(pooled, pool, bytes, order);
	if (pool != NULL && !account_find_pool(pool, &pooled->account))
		find_owner(pooled, &card);
	else if (pool == NULL && device_of(order, context, &device))
		find_current(pooled, device, &card);
	if (pooled->account.kind != LEDGER_NONE) {
		card = charge_indexed_card(pooled->account.card);
		if (card == NULL)	/* on the host */
			return true;
	}
	return card == NULL || reserve(pooled, card, bytes, order);
}

/* The driver answered ret and gave `at`. */
static CUresult taken(struct pooled *pooled, CUresult ret, CUdeviceptr at, uint64_t bytes)
{
	const struct charge *charge = &pooled->charge;
	uint64_t held, used;

	if (charge->card == NULL)
		return ret;
	if (ret != CUDA_SUCCESS || pooled->capturing || (pooled->account.kind == LEDGER_NONE && on_host(at))) {
		usage_release(card_index(charge->card), charge->bytes);
		return ret;
	}
	if (pooled->account.kind == LEDGER_NONE) {
		if (pooled->pool == NULL || !account_pool(pooled->pool, &held, &used))
			return charge_settle(charge, ret, LEDGER_POINTER, at);
		account_open(LEDGER_POOL, (uintptr_t)pooled->pool, card_index(charge->card), 0);
	}
	if (!account_settle(charge, LEDGER_POOL, (uintptr_t)pooled->pool))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (pooled->account.references == BUILT_IN)
		return ret;
	__atomic_store_n(&process_own()->pooled, true, __ATOMIC_RELEASE);
	ledger_put((struct ledger_entry){ .key = at, .bytes = bytes, .kind = LEDGER_POOLED,
					  .of = (uintptr_t)pooled->pool,
					  .card = (int16_t)card_index(charge->card) });
	return ret;
}

/* The pool took more than the limit leaves: it goes back, as if it had not been there. */
static CUresult refused(const struct pooled *pooled)
{
	CALL(cuMemPoolTrimTo, pooled->pool, 0);
	accounts_renew();
	return charge_refused(pooled->charge.card);
}

/* Nothing was there that it could come from, and it came (charge_late). False: it is to go back. */
static bool begin_late(struct pooled *pooled, CUresult ret, CUmemoryPool pool, uint64_t bytes, const struct order *order)
{
	return ret != CUDA_SUCCESS || pooled->charge.card != NULL || pooled->account.kind != LEDGER_NONE ||
	       begin(pooled, pool, bytes, order);
}

static CUresult allocate(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, struct order order)
{
	struct pooled pooled;
	CUdeviceptr at;
	CUresult ret;
	bool fits;

	if (!begin(&pooled, pool, bytes, &order))
		return pooled.charge.why != CUDA_SUCCESS ? pooled.charge.why : CUDA_ERROR_OUT_OF_MEMORY;
	at = *out;
	if (pool != NULL)
		ret = order.per_thread ?
			CALL(cuMemAllocFromPoolAsync_ptsz, &at, bytes, pool, order.stream) :
			CALL(cuMemAllocFromPoolAsync, &at, bytes, pool, order.stream);
	else
		ret = order.per_thread ? CALL(cuMemAllocAsync_ptsz, &at, bytes, order.stream) :
			CALL(cuMemAllocAsync, &at, bytes, order.stream);
	fits = begin_late(&pooled, ret, pool, bytes, &order);
	if (ret == CUDA_SUCCESS && !pooled.capturing && pooled.account.kind == LEDGER_NONE)
		pooled.capturing = capturing(&order);
	if (!fits || taken(&pooled, ret, at, bytes) != ret) {
		if (order.per_thread)
			CALL(cuMemFreeAsync_ptsz, at, order.stream);
		else
			CALL(cuMemFreeAsync, at, order.stream);
		ret = fits ? refused(&pooled) : pooled.charge.why;
	}
	*out = at;
	return ret;
}

/* Apart, so that the hook itself saves no registers for what nearly never happens. */
static __attribute__((noinline, cold))
CUresult allocate_below(CUdeviceptr *out, size_t bytes, struct order order, const void *caller)
{
	if (out != NULL && !CALLED_BELOW(caller))
		return allocate(out, bytes, NULL, order);
	return order.per_thread ? DRIVER(cuMemAllocAsync_ptsz)(out, bytes, order.stream) :
		DRIVER(cuMemAllocAsync)(out, bytes, order.stream);
}

CUresult EXPORT cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	if (charge_depth > 0 || out == NULL)
		return allocate_below(out, bytes, (struct order){ stream, false }, CALLER);
	return allocate(out, bytes, NULL, (struct order){ stream, false });
}

CUresult EXPORT cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	if (charge_depth > 0 || out == NULL)
		return allocate_below(out, bytes, (struct order){ stream, true }, CALLER);
	return allocate(out, bytes, NULL, (struct order){ stream, true });
}

CUresult EXPORT cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
					CUstream stream)
{
	if (NESTED || out == NULL || pool == NULL)
		return DRIVER(cuMemAllocFromPoolAsync)(out, bytes, pool, stream);
	return allocate(out, bytes, pool, (struct order){ stream, false });
}

CUresult EXPORT cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
					     CUstream stream)
{
	if (NESTED || out == NULL || pool == NULL)
		return DRIVER(cuMemAllocFromPoolAsync_ptsz)(out, bytes, pool, stream);
	return allocate(out, bytes, pool, (struct order){ stream, true });
}

/* A free in a capture is a node of the graph: nothing is free yet. */
static CUresult freed(const struct ledger_entry *entry, CUresult ret, struct order order)
{
	if (entry->kind != LEDGER_NONE && ret == CUDA_SUCCESS && capturing(&order)) {
		ledger_put(*entry);
		return ret;
	}
	return charge_released(entry, ret);
}

CUresult EXPORT cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
	struct ledger_entry entry;

	if (NESTED)
		return DRIVER(cuMemFreeAsync)(at, stream);
	entry = charge_release_pointer(at);
	return freed(&entry, CALL(cuMemFreeAsync, at, stream), (struct order){ stream, false });
}

CUresult EXPORT cuMemFreeAsync_ptsz(CUdeviceptr at, CUstream stream)
{
	struct ledger_entry entry;

	if (NESTED)
		return DRIVER(cuMemFreeAsync_ptsz)(at, stream);
	entry = charge_release_pointer(at);
	return freed(&entry, CALL(cuMemFreeAsync_ptsz, at, stream), (struct order){ stream, true });
}

/* What a new pool is, from the same copy that the driver was given. */
static void created(CUmemoryPool pool, const struct CUmem_pool_props *props)
{
	struct card *card = NULL;

	if (props->location.type == CU_MEM_LOCATION_DEVICE) {
		card = charge_device_card(props->location.id);
		if (card == NULL || card_index(card) < 0)
			return;		/* it counts where it is allocated from, if anywhere */
	} else if (props->type != CU_MEM_ALLOCATION_PINNED) {
		return;			/* managed: the first memory tells */
	}
	account_open(LEDGER_POOL, (uintptr_t)pool, card != NULL ? card_index(card) : -1, 0);
}

CUresult EXPORT cuMemPoolCreate(CUmemoryPool *out, const struct CUmem_pool_props *props)
{
	struct CUmem_pool_props copy;
	CUmemoryPool pool;
	CUresult ret;

	if (NESTED || out == NULL || props == NULL)
		return DRIVER(cuMemPoolCreate)(out, props);
	copy = READ_ONCE(props);
	pool = *out;
	ret = CALL(cuMemPoolCreate, &pool, &copy);
	if (ret == CUDA_SUCCESS)
		created(pool, &copy);
	*out = pool;
	return ret;
}

/* What was not freed counts by itself from now on, what the pool kept does not. */
static void destroyed(uint64_t pool)
{
	struct ledger_entry account, memory;
	uint64_t left = 0;

	while (ledger_take_of(LEDGER_POOLED, pool, &memory)) {
		memory.kind = LEDGER_POINTER;
		memory.of = 0;
		left += memory.bytes;
		ledger_put(memory);
	}
	if (!account_close(LEDGER_POOL, pool, &account) || account.card < 0)
		return;
	usage_add(account.card, left);
	usage_release(account.card, account.bytes);
}

CUresult EXPORT cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult ret;

	if (NESTED)
		return DRIVER(cuMemPoolDestroy)(pool);
	accounts_synchronised();
	ret = CALL(cuMemPoolDestroy, pool);
	if (ret == CUDA_SUCCESS)
		destroyed((uintptr_t)pool);
	return ret;
}

static CUresult changed(CUresult ret, bool nested)
{
	if (ret == CUDA_SUCCESS && !nested)
		accounts_renew();
	return ret;
}

CUresult EXPORT cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	return changed(DRIVER(cuMemPoolTrimTo)(pool, keep), NESTED);
}

CUresult EXPORT cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	return changed(DRIVER(cuMemPoolSetAttribute)(pool, attribute, value), NESTED);
}
