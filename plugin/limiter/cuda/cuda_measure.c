/* cuda_measure.c - measures what a call takes of the card.
 *
 * One at a time in the container: of two measured at once one would be counted for the other. But
 * the driver may compile for many seconds, or wait for what is in flight, and that for a thread that
 * wants to load. So who does not get its turn within two seconds measures all the same. In a process
 * the turn is a mutex; among processes the kernel's lock on the usage file, which goes with its
 * holder. It is not the one under which slots are claimed (usage_file.c): a program that starts
 * meanwhile must not wait for it. */
#define _GNU_SOURCE
#include "measure.h"
#include "settings.h"
#include "system.h"

#ifndef F_OFD_SETLK			/* glibc has it since 2.20, Linux since 3.15 */
#define F_OFD_SETLK 37
#endif

#define TURN_NS 2000000000u		/* for so long a turn is waited for */
#define LOOK_NS 1000000

static uint64_t unknown_bytes(const struct measure *measure)
{
	size_t free_bytes = 0, total = 0;

	accounts_renew();
	if (CALL(cuMemGetInfo_v2, &free_bytes, &total) != CUDA_SUCCESS)
		return 0;
	return free_bytes + usage_total(card_index(measure->card));
}

/* F_WRLCK or F_UNLCK; a child that another thread forks meanwhile has the description as well, so that
 * closing it would not end the turn. */
static bool turn(int file, short type)
{
	struct flock all = { .l_type = type, .l_whence = SEEK_SET };

	return system_call(SYS_fcntl, file, F_OFD_SETLK, (long)&all, 0, 0, 0) == 0;
}

static int wait_turn(void)
{
	char path[2 * SETTING_MAX];
	int file = -1;

	if (setting_path(path, sizeof(path), setting_folder(), "usage"))
		file = system_open(path, O_RDWR);
	for (unsigned int i = 0; file >= 0 && !turn(file, F_WRLCK) && i < TURN_NS / LOOK_NS; i++)
		system_sleep(LOOK_NS);
	return file;
}

enum mutex_entry measure_enter(struct process *own)
{
	return own != NULL ? mutex_enter_for(&own->modules, THREAD, TURN_NS) : MUTEX_MISSED;
}

void measure_begin(struct measure *measure)
{
	struct process *own = process_own();
	enum mutex_entry entry = measure_enter(own);

	*measure = (struct measure){ .own = entry != MUTEX_MISSED ? own : NULL, .mode = CU_CAPTURE_RELAXED,
				     .turn = entry == MUTEX_ENTERED ? wait_turn() : -1 };
	measure->card = charge_current_card(&measure->context);
	CALL(cuThreadExchangeStreamCaptureMode, &measure->mode);
	if (measure->card != NULL)
		measure->unknown = unknown_bytes(measure);
	CALL(cuThreadExchangeStreamCaptureMode, &measure->mode);
}

uint64_t measure_taken(struct measure *measure)
{
	uint64_t before = measure->unknown;

	if (measure->card == NULL)
		return 0;
	measure->mode = CU_CAPTURE_RELAXED;
	CALL(cuThreadExchangeStreamCaptureMode, &measure->mode);
	measure->unknown = unknown_bytes(measure);
	CALL(cuThreadExchangeStreamCaptureMode, &measure->mode);
	return before > measure->unknown ? before - measure->unknown : 0;
}

CUresult measure_finish(const struct measure *measure, CUresult ret)
{
	if (measure->turn >= 0) {
		turn(measure->turn, F_UNLCK);
		system_close(measure->turn);
	}
	if (measure->own != NULL)
		mutex_leave(&measure->own->modules);
	return ret;
}
