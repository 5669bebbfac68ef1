/* cuda_account.c - what pools and graphs hold, as the driver says it.
 *
 * A pool keeps memory after a free until a synchronisation finds more than its threshold unused, or
 * until it is trimmed; graphs of a device keep theirs until they are trimmed. Both answer how much
 * they hold, and that is what counts: it is what the card lacks. */
#include "account.h"

/* Where this thread asks the driver already: that called the program back. It may also have left by longjmp. */
static __thread uintptr_t asking __attribute__((tls_model("initial-exec")));

/* False: the driver does not say, or is being asked in this thread, and would be again and again. */
static bool held(const struct ledger_entry *account, uint64_t *bytes)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	CUresult ret;

	if (asking != 0 && here < asking)
		return false;
	asking = here;
	if (account->kind == LEDGER_POOL)
		ret = CALL(cuMemPoolGetAttribute, (CUmemoryPool)(uintptr_t)account->key, CU_MEMPOOL_RESERVED,
			   bytes);
	else
		ret = CALL(cuDeviceGetGraphMemAttribute, (CUdevice)account->key, CU_GRAPH_MEM_RESERVED, bytes);
	asking = 0;
	return ret == CUDA_SUCCESS;
}

bool account_pool(CUmemoryPool pool, uint64_t *reserved, uint64_t *used)
{
	return CALL(cuMemPoolGetAttribute, pool, CU_MEMPOOL_RESERVED, reserved) == CUDA_SUCCESS &&
	       CALL(cuMemPoolGetAttribute, pool, CU_MEMPOOL_USED, used) == CUDA_SUCCESS;
}

/* The place of a pool's account, or of none: a free one. NULL: all are taken by others. */
static struct pool_seen *seen(struct process *own, uint64_t key)
{
	struct pool_seen *free = NULL;

	for (int i = 0; i < POOLS_SEEN; i++) {
		uint64_t there = __atomic_load_n(&own->pools[i].key, __ATOMIC_ACQUIRE);

		if (there == key)
			return &own->pools[i];
		if (there == 0 && free == NULL)
			free = &own->pools[i];
	}
	return free;
}

/* With the mutex of the accounts: what was counted last can be read without it from now on. */
static void see(struct process *own, const struct ledger_entry *account, uint64_t bytes)
{
	struct pool_seen *place = account->kind == LEDGER_POOL ? seen(own, account->key) : NULL;

	if (place == NULL)
		return;
	__atomic_store_n(&place->bytes, bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&place->card, account->card, __ATOMIC_RELAXED);
	__atomic_store_n(&place->references, account->references, __ATOMIC_RELAXED);
	__atomic_store_n(&place->key, account->key, __ATOMIC_RELEASE);
}

/* A pool's handle comes again only after the pool was destroyed, and so after its place was freed. */
bool account_find_pool(CUmemoryPool pool, struct ledger_entry *out)
{
	struct process *own = process_own();
	uint64_t key = (uintptr_t)pool;
	const struct pool_seen *place = own != NULL ? seen(own, key) : NULL;

	if (place == NULL || __atomic_load_n(&place->key, __ATOMIC_ACQUIRE) != key)
		return ledger_get(LEDGER_POOL, key, out);
	*out = (struct ledger_entry){ .key = key, .kind = LEDGER_POOL,
				      .bytes = __atomic_load_n(&place->bytes, __ATOMIC_RELAXED),
				      .references = __atomic_load_n(&place->references, __ATOMIC_RELAXED),
				      .card = (int16_t)__atomic_load_n(&place->card, __ATOMIC_RELAXED) };
	return true;
}

void account_open(enum ledger_kind kind, uint64_t key, int card, unsigned int references)
{
	struct process *own = process_own();

	if (own == NULL)
		return;
	mutex_enter(&own->accounts, THREAD);
	if (!ledger_has(kind, key) &&
	    ledger_put((struct ledger_entry){ .key = key, .kind = (uint16_t)kind, .card = (int16_t)card,
					      .references = references }))
		__atomic_add_fetch(&own->accounts_known, 1, __ATOMIC_RELEASE);
	mutex_leave(&own->accounts);
}

bool account_close(enum ledger_kind kind, uint64_t key, struct ledger_entry *out)
{
	struct process *own = process_own();
	bool there;

	if (own == NULL)
		return false;
	mutex_enter(&own->accounts, THREAD);
	there = ledger_take(kind, key, out);
	if (there && kind == LEDGER_POOL) {
		struct pool_seen *place = seen(own, key);

		if (place != NULL)
			__atomic_store_n(&place->key, 0, __ATOMIC_RELEASE);
	}
	if (there)
		__atomic_sub_fetch(&own->accounts_known, 1, __ATOMIC_RELEASE);
	mutex_leave(&own->accounts);
	return there;
}

/* Memory of graphs went back to the card: nobody can tell whose it was. */
static void forget_reuse(struct process *own, int card)
{
	mutex_lock(&own->graphs);
	for (int i = 0; i < REUSED_MAX; i++)
		if (own->reused[i].card == card)
			own->reused[i].bytes = 0;
	mutex_unlock(&own->graphs);
}

/* Count what the account holds, less what was reserved for it. True: it holds more than that. Where the driver does
 * not say, what was reserved counts. */
static bool count(struct process *own, const struct ledger_entry *account, uint64_t reserved)
{
	struct ledger_entry before;
	uint64_t bytes = 0;
	bool more = false, there;

	mutex_enter(&own->accounts, THREAD);
	if (held(account, &bytes)) {
		there = ledger_set(account->kind, account->key, bytes, &before);
	} else if ((there = ledger_get(account->kind, account->key, &before))) {
		bytes = before.bytes + reserved;
		there = ledger_set(account->kind, account->key, bytes, &before);
	}
	if (!there) {
		mutex_leave(&own->accounts);
		return false;
	}
	see(own, &before, bytes);
	if (bytes > before.bytes + reserved) {
		usage_add(account->card, bytes - before.bytes - reserved);
		more = true;
	} else if (bytes != before.bytes + reserved) {
		usage_release(account->card, before.bytes + reserved - bytes);
	}
	mutex_leave(&own->accounts);
	if (account->kind == LEDGER_GRAPHS && bytes < before.bytes)
		forget_reuse(own, account->card);
	return more;
}

/* A pool that holds what was counted last: then all that was reserved goes back, and no lock is needed. */
static bool unchanged(const struct ledger_entry *account, uint64_t reserved)
{
	struct ledger_entry last;
	uint64_t bytes;

	if (account->kind != LEDGER_POOL || !account_find_pool((CUmemoryPool)(uintptr_t)account->key, &last) ||
	    !held(account, &bytes) || bytes != last.bytes)
		return false;
	if (reserved != 0)
		usage_release(account->card, reserved);
	return true;
}

bool account_settle(const struct charge *charge, enum ledger_kind kind, uint64_t key)
{
	struct ledger_entry account = { .kind = (uint16_t)kind, .key = key,
					.card = (int16_t)card_index(charge->card) };
	struct process *own = process_own();

	if (unchanged(&account, charge->bytes))
		return true;

	return own == NULL || !count(own, &account, charge->bytes) ||
	       usage_total(card_index(charge->card)) <= limits_room(charge->card);
}

static const enum ledger_kind kinds[] = { LEDGER_POOL, LEDGER_GRAPHS };

void accounts_renew(void)
{
	struct process *own = process_own();
	struct ledger_entry account;

	if (own == NULL || __atomic_load_n(&own->accounts_known, __ATOMIC_ACQUIRE) == 0)
		return;
	for (unsigned int kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++)
		for (unsigned int at = 0; ledger_next(kinds[kind], &at, &account);)
			if (account.card >= 0)
				count(own, &account, 0);
}

void accounts_moved(void)
{
	struct process *own = process_own();

	if (own != NULL && __atomic_load_n(&own->accounts_known, __ATOMIC_RELAXED) != 0)
		__atomic_store_n(&own->accounts_moved, true, __ATOMIC_RELAXED);
}

void accounts_synchronised(void)
{
	struct process *own = process_own();

	if (own == NULL || !__atomic_load_n(&own->accounts_moved, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&own->accounts_moved, false, __ATOMIC_RELAXED);
	accounts_renew();
}

/* In relaxed mode: it must not end another thread's capture. */
bool account_make_room(const struct card *card)
{
	struct process *own = process_own();
	struct ledger_entry account;
	int mode = CU_CAPTURE_RELAXED;

	if (own == NULL || card == NULL || card_index(card) < 0 ||
	    __atomic_load_n(&own->accounts_known, __ATOMIC_ACQUIRE) == 0)
		return false;
	CALL(cuThreadExchangeStreamCaptureMode, &mode);
	for (unsigned int kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++)
		for (unsigned int at = 0; ledger_next(kinds[kind], &at, &account);) {
			if (account.card != card_index(card))
				continue;
			if (account.kind == LEDGER_POOL)
				CALL(cuMemPoolTrimTo, (CUmemoryPool)(uintptr_t)account.key, 0);
			else
				CALL(cuDeviceGraphMemTrim, (CUdevice)account.key);
		}
	CALL(cuThreadExchangeStreamCaptureMode, &mode);
	accounts_renew();
	return true;
}
