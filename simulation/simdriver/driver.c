/* driver.c - the driver as this process sees it: only cards whose device files it can open. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

static bool can_open(const char *root, const char *folder, unsigned int minor)
{
	char path[PATH_MAX + 64];
	int fd;

	snprintf(path, sizeof(path), "%s/dev/%s%u", root, folder, minor);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static bool control_there(const char *root)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/dev/nvidiactl", root);
	return access(path, R_OK) == 0;
}

static int keep_migs(struct sim_card *card, const char *root)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < card->nmig; i++) {
		struct sim_mig *mig = &card->mig[i];

		if (!can_open(root, "nvidia-caps/nvidia-cap", mig->caps[0]) ||
		    !can_open(root, "nvidia-caps/nvidia-cap", mig->caps[1]))
			continue;
		card->mig[kept] = *mig;
		mig = &card->mig[kept++];
		mig->card = card;
		mig->entry = sim_entry(mig->uuid);
		if (mig->entry < 0)
			return -ENOSPC;
	}
	card->nmig = kept;
	return 0;
}

static int keep_visible(struct sim_driver *drv)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < drv->ncards; i++) {
		struct sim_card *card = &drv->cards[kept];
		int ret;

		if (!can_open(drv->root, "nvidia", drv->cards[i].minor))
			continue;
		if (kept != i)
			*card = drv->cards[i];
		kept++;
		card->entry = sim_entry(card->uuid);
		ret = card->entry < 0 ? -ENOSPC : keep_migs(card, drv->root);
		if (ret < 0)
			return ret;
	}
	drv->ncards = kept;
	return 0;
}

int sim_driver_open(struct sim_driver *drv, const void *own_symbol)
{
	int ret;

	sim_root(own_symbol, drv->root, sizeof(drv->root));
	if (!control_there(drv->root))
		return -ENODEV;
	ret = sim_state_open(drv->root);
	if (ret < 0) {
		fprintf(stderr, "%s" SIM_FOLDER "/state: cannot use: %s\n", drv->root,
			strerror(-ret));
		return ret;
	}
	if (sim_unloaded())
		return -ENODEV;
	ret = sim_cards_load(drv);
	if (ret < 0)
		return ret;
	sim_lock();
	ret = keep_visible(drv);
	sim_unlock();
	return ret;
}
