/* simctl.c - sets up the shared state of a driver root and injects what can go wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define XID_EVENT 0x8

static struct sim_driver driver;

static const char usage[] =
	"usage: simctl ROOT COMMAND ...\n"
	"  init                      make the shared state if it is missing or of another version\n"
	"  check                     read the cards file; exit 1 on a bad line\n"
	"  xid UUID CODE             send an XID event\n"
	"  vanish UUID               the card falls off the bus\n"
	"  restore UUID              and is back\n"
	"  hang CALL                 the call (* for every NVML call) hangs until clear\n"
	"  fail CALL CODE            the call answers CODE until clear\n"
	"  unload | load             the driver is not loaded; is again\n"
	"  clear                     ends every vanish, hang, fail and unload\n"
	"  clear CALL                ends the hang or fail of that call\n"
	"  temperature UUID CELSIUS\n"
	"  utilisation UUID PERCENT\n"
	"  used UUID                 prints MiB taken on a card (its instances too) or an instance\n"
	"  busy UUID                 prints the milliseconds that living processes used of a card\n";

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "simctl: %s: %s\n", what, why);
	return 1;
}

static int init(void)
{
	int ret = sim_state_open(driver.root);

	if (ret == -ENOENT || ret == -EPROTO)
		ret = sim_state_create(driver.root);
	return ret < 0 ? complain("state", strerror(-ret)) : 0;
}

static bool number(const char *text, long *out)
{
	char *end;

	errno = 0;
	*out = strtol(text, &end, 10);
	return errno == 0 && end != text && *end == '\0';
}

static const struct sim_card *card_of(const char *uuid)
{
	for (unsigned int i = 0; i < driver.ncards; i++)
		if (strcmp(driver.cards[i].uuid, uuid) == 0)
			return &driver.cards[i];
	return NULL;
}

static bool known(const char *uuid)
{
	if (card_of(uuid) != NULL)
		return true;
	for (unsigned int i = 0; i < driver.ncards; i++)
		for (unsigned int m = 0; m < driver.cards[i].nmig; m++)
			if (strcmp(driver.cards[i].mig[m].uuid, uuid) == 0)
				return true;
	return false;
}

static int used(const char *uuid)
{
	const struct sim_card *card = card_of(uuid);
	uint64_t bytes;

	sim_lock();
	bytes = sim_used(sim_entry(uuid));
	for (unsigned int m = 0; card != NULL && m < card->nmig; m++)
		bytes += sim_used(sim_entry(card->mig[m].uuid));
	sim_unlock();
	printf("%llu\n", (unsigned long long)(bytes / SIM_MIB));
	return 0;
}

static int busy(const char *uuid)
{
	uint64_t ns;

	sim_lock();
	ns = sim_busy_ns(sim_entry(uuid));
	sim_unlock();
	printf("%llu\n", (unsigned long long)(ns / 1000000));
	return 0;
}

/* Commands on one card: with a number, or without. */
static int on_card(const char *command, int entry, long value)
{
	int ret = 0;

	sim_lock();
	if (strcmp(command, "xid") == 0)
		sim_ring_put(entry, XID_EVENT, (uint64_t)value);
	else if (strcmp(command, "temperature") == 0)
		sim_set_temperature(entry, (int)value);
	else if (strcmp(command, "utilisation") == 0)
		sim_set_utilisation(entry, (unsigned int)value);
	else if (strcmp(command, "vanish") == 0)
		sim_lose(entry, true);
	else if (strcmp(command, "restore") == 0)
		sim_lose(entry, false);
	else
		ret = 2;
	sim_unlock();
	return ret;
}

static int card_command(int argc, char **argv)
{
	bool plain = strcmp(argv[0], "vanish") == 0 || strcmp(argv[0], "restore") == 0;
	long value = 0;
	int entry;

	if (argc != (plain ? 2 : 3) || (!plain && !number(argv[2], &value)))
		return 2;
	if (!known(argv[1]))
		return complain(argv[1], "no such card in the cards file");
	sim_lock();
	entry = sim_entry(argv[1]);
	sim_unlock();
	return entry < 0 ? complain(argv[1], "the state is full") : on_card(argv[0], entry, value);
}

static int driver_command(int argc, char **argv)
{
	long code = 0;
	int ret = 0;

	sim_lock();
	if (argc == 1 && strcmp(argv[0], "clear") == 0)
		sim_faults_clear();
	else if (argc == 2 && strcmp(argv[0], "clear") == 0)
		sim_fault_end(argv[1]);
	else if (argc == 1 && strcmp(argv[0], "unload") == 0)
		sim_unload(true);
	else if (argc == 1 && strcmp(argv[0], "load") == 0)
		sim_unload(false);
	else if (argc == 2 && strcmp(argv[0], "hang") == 0)
		ret = sim_fault_add(argv[1], SIM_FAULT_HANG, 0);
	else if (argc == 3 && strcmp(argv[0], "fail") == 0 && number(argv[2], &code) && code > 0)
		ret = sim_fault_add(argv[1], SIM_FAULT_FAIL, (int)code);
	else
		ret = 2;
	sim_unlock();
	return ret < 0 ? complain(argv[0], "too many faults, or too long a name") : ret;
}

static int run(int argc, char **argv)
{
	int ret;

	if (argc == 1 && strcmp(argv[0], "init") == 0)
		return init();
	if (sim_cards_load(&driver) < 0)
		return 1;
	if (argc == 1 && strcmp(argv[0], "check") == 0)
		return 0;
	ret = sim_state_open(driver.root);
	if (ret < 0)
		return complain("state", strerror(-ret));
	if (argc == 2 && strcmp(argv[0], "used") == 0)
		return known(argv[1]) ? used(argv[1]) : complain(argv[1], "no such card");
	if (argc == 2 && strcmp(argv[0], "busy") == 0)
		return known(argv[1]) ? busy(argv[1]) : complain(argv[1], "no such card");
	ret = driver_command(argc, argv);
	return ret == 2 ? card_command(argc, argv) : ret;
}

int main(int argc, char **argv)
{
	int ret = 2;

	if (argc >= 3 && strlen(argv[1]) < sizeof(driver.root)) {
		strcpy(driver.root, strcmp(argv[1], "/") == 0 ? "" : argv[1]);
		ret = run(argc - 2, argv + 2);
	}
	if (ret == 2)
		fputs(usage, stderr);
	return ret;
}
