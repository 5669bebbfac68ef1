/* cuda_checkpoint.c - processes that are locked, checkpointed and restored, each by any that sees it.
 *
 * What a process has of its cards is put aside whole, and comes back whole or not at all. */
#include "cuda_core.h"

/* With the lock. */
static bool fits(int pid)
{
	const struct cu_dev *dev;

	for (int i = 0; (dev = cu_dev_at(i)) != NULL; i++)
		if (sim_used(dev->entry) + sim_process_bytes(pid, dev->entry) > dev->limit)
			return false;
	return true;
}

/* The process goes from one state to the next; what is put aside has to fit where it comes back. */
static CUresult go(const char *call, int pid, enum sim_process from, enum sim_process to)
{
	bool has_room = true;
	CUresult ret = cu_enter_locked(call);
	int state;

	if (ret != CUDA_SUCCESS)
		return ret;
	sim_lock();
	state = sim_process(pid);
	if (state == (int)from && from == SIM_CHECKPOINTED)
		has_room = fits(pid);
	if (state == (int)from && has_room)
		sim_process_set(pid, to);
	sim_unlock();
	if (state < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (state != (int)from)
		return CUDA_ERROR_ILLEGAL_STATE;
	return has_room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API CUresult cuCheckpointProcessLock(int pid, void *args)
{
	(void)args;
	return go(__func__, pid, SIM_RUNNING, SIM_LOCKED);
}

SIM_API CUresult cuCheckpointProcessUnlock(int pid, void *args)
{
	(void)args;
	return go(__func__, pid, SIM_LOCKED, SIM_RUNNING);
}

SIM_API CUresult cuCheckpointProcessCheckpoint(int pid, void *args)
{
	(void)args;
	return go(__func__, pid, SIM_LOCKED, SIM_CHECKPOINTED);
}

SIM_API CUresult cuCheckpointProcessRestore(int pid, void *args)
{
	(void)args;
	return go(__func__, pid, SIM_CHECKPOINTED, SIM_LOCKED);
}

SIM_API CUresult cuCheckpointProcessGetState(int pid, int *out)
{
	CUresult ret = cu_enter_locked(__func__);
	int state;

	if (ret != CUDA_SUCCESS)
		return ret;
	sim_lock();
	state = sim_process(pid);
	sim_unlock();
	if (state < 0 || out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = state;
	return CUDA_SUCCESS;
}
