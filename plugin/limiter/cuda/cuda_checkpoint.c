/* cuda_checkpoint.c - processes that are put aside and come back: all that one has of its cards is given at once, and taken
 * at once.
 *
 * Any process of the container may ask for either, of itself too. */
#include "account.h"
#include "system.h"

enum { PROCESS_RUNNING = 0, PROCESS_CHECKPOINTED = 2 };	/* of CUprocessState */

/* To the host at once. Where the caller brings a storage of its own, it is copied later, and stays on the card so long. */
static bool is_whole(const struct CUcheckpointArgs *args)
{
	uint64_t any = 0;

	for (unsigned int i = 0; args != NULL && i < sizeof(args->words) / sizeof(*args->words); i++)
		any |= args->words[i];
	return any == 0;
}

CUresult EXPORT cuCheckpointProcessCheckpoint(int pid, struct CUcheckpointArgs *args)
{
	struct CUcheckpointArgs copy;
	struct usage_place place;
	CUresult ret;

	if (NESTED)
		return DRIVER(cuCheckpointProcessCheckpoint)(pid, args);
	if (args != NULL)
		copy = READ_ONCE(args);
	place = usage_move_begin(pid);
	ret = CALL(cuCheckpointProcessCheckpoint, pid, args != NULL ? &copy : NULL);
	if (ret == CUDA_SUCCESS && is_whole(args != NULL ? &copy : NULL))
		usage_put_aside(&place);
	usage_move_end(&place);
	return ret;
}

static bool is_state(int pid, int wanted)
{
	int state = -1;

	return CALL(cuCheckpointProcessGetState, pid, &state) == CUDA_SUCCESS && state == wanted;
}

/* NULL: what was put aside counts again. Else the card whose limit it would pass. */
static struct card *take_back(const struct usage_place *place)
{
	struct card *cards[CARDS_MAX];
	uint64_t rooms[CARDS_MAX];
	uint8_t uuid[16];
	int card;

	for (int i = 0; i < CARDS_MAX; i++) {
		cards[i] = usage_uuid(i, uuid) ? limits_card(uuid) : limits_unknown();
		rooms[i] = limits_room(cards[i]);
	}
	return usage_take_back(place, rooms, &card) ? NULL : cards[card];
}

/* What this process keeps unused makes room, on each card that lacks some. Where it is locked itself, the driver would
 * have it wait in each such call, until it is unlocked. */
static struct card *take_back_with_room(const struct usage_place *place)
{
	struct card *lacking = take_back(place), *before = NULL;
	bool runs = lacking != NULL && is_state(system_pid(), PROCESS_RUNNING);

	while (runs && lacking != NULL && lacking != before && account_make_room(lacking)) {
		before = lacking;
		lacking = take_back(place);
	}
	return lacking;
}

static CUresult restore(const struct usage_place *place, int pid, void *args)
{
	bool was_aside = usage_is_aside(place);
	struct card *lacking = take_back_with_room(place);
	CUresult ret;

	if (lacking != NULL) {
		usage_refused(card_index(lacking));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	ret = CALL(cuCheckpointProcessRestore, pid, args);
	if (ret != CUDA_SUCCESS && was_aside && is_state(pid, PROCESS_CHECKPOINTED))
		usage_put_aside(place);
	return ret;
}

CUresult EXPORT cuCheckpointProcessRestore(int pid, void *args)
{
	struct usage_place place;
	CUresult ret;

	if (NESTED)
		return DRIVER(cuCheckpointProcessRestore)(pid, args);
	place = usage_move_begin(pid);
	ret = restore(&place, pid, args);
	usage_move_end(&place);
	return ret;
}
