/*
 * A plugin for mosquitto 2.0 on the listener of boxes: what its access list cannot say.
 *
 * mosquitto's list does not look at SUBSCRIBE, so that one box can fill the broker's memory with filters, and mosquitto
 * has no rate of messages. Here each box, known by the name in its certificate, has its own filters alone and a number
 * of messages in a time, over all its connections. What is more is refused, as by the access list. docs/broker.md
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <mosquitto.h>
#include <mosquitto_broker.h>
#include <mosquitto_plugin.h>

#define PREFIX "edgegpu/v1/"
#define TOLD_TOPIC "$SYS/broker/edgegpu/refused/"
#define NAME_MAX_BYTES 64
#define SLOTS 16384
#define PER_S 20.0
#define BURST 1000.0
#define TELL_EVERY_S 10.0

/* A box: its budget, and what was refused of it since that was last told. */
struct box {
	struct box *next;
	char name[NAME_MAX_BYTES + 1];
	double budget, at_s;
	unsigned long messages, filters;
};

static mosquitto_plugin_id_t *plugin;
static struct box *boxes[SLOTS];
static double told_s;

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Return the box of a name, a new one with a whole budget; NULL where there is no memory. One stays for each name. */
static struct box *box_of(const char *name)
{
	uint32_t hash = 2166136261U;
	struct box *box;

	for (const char *at = name; *at; at++)
		hash = (hash ^ (unsigned char)*at) * 16777619U;
	struct box **slot = &boxes[hash % SLOTS];
	for (box = *slot; box; box = box->next)
		if (!strcmp(box->name, name))
			return box;
	box = calloc(1, sizeof(*box));
	if (!box)
		return NULL;
	strcpy(box->name, name); /* its caller has looked at the length */
	box->budget = BURST;
	box->at_s = now_s();
	box->next = *slot;
	*slot = box;
	return box;
}

/* Take one message or filter from a box's budget; return whether there was one. */
static bool spend(struct box *box)
{
	double at_s = now_s();

	box->budget += (at_s - box->at_s) * PER_S;
	box->at_s = at_s;
	if (box->budget > BURST)
		box->budget = BURST;
	if (box->budget < 1.0)
		return false;
	box->budget -= 1.0;
	return true;
}

/* Say in the log, and to controllers, what was refused of a box. */
static void tell(struct box *box)
{
	char topic[sizeof(TOLD_TOPIC) + NAME_MAX_BYTES], text[64];

	snprintf(topic, sizeof(topic), "%s%s", TOLD_TOPIC, box->name);
	int size = snprintf(text, sizeof(text), "%lu %lu", box->messages, box->filters);
	mosquitto_log_printf(MOSQ_LOG_WARNING, "edgegpu: refused of %s: %lu messages, %lu filters", box->name, box->messages,
			     box->filters);
	mosquitto_broker_publish_copy(NULL, topic, size, text, 0, false, NULL);
	box->messages = box->filters = 0;
}

/* Tell what was refused of each box, every few seconds. mosquitto 2.0.11 calls no plugin of a listener by the clock. */
static void tell_all(void)
{
	double at_s = now_s();

	if (at_s - told_s < TELL_EVERY_S)
		return;
	told_s = at_s;
	for (size_t slot = 0; slot < SLOTS; slot++)
		for (struct box *box = boxes[slot]; box; box = box->next)
			if (box->messages || box->filters)
				tell(box);
}

/* Whether a filter is the one that a box needs, or the one by which `edgegpu-cloud kick` takes its place. */
static bool is_own(const char *name, const char *filter)
{
	size_t size = strlen(name);

	if (strncmp(filter, PREFIX, sizeof(PREFIX) - 1))
		return false;
	filter += sizeof(PREFIX) - 1;
	if (strncmp(filter, name, size))
		return false;
	return !strcmp(filter + size, "/down/#") || !strcmp(filter + size, "/down/keys");
}

static int check(int event, void *data, void *unused)
{
	struct mosquitto_evt_acl_check *asked = data;
	const char *name = mosquitto_client_username(asked->client);

	(void)event;
	(void)unused;
	tell_all();
	if (asked->access != MOSQ_ACL_SUBSCRIBE && asked->access != MOSQ_ACL_WRITE)
		return MOSQ_ERR_PLUGIN_DEFER;
	if (!name || strlen(name) > NAME_MAX_BYTES)
		return MOSQ_ERR_ACL_DENIED;
	struct box *box = box_of(name);
	if (!box)
		return MOSQ_ERR_ACL_DENIED;
	bool filter = asked->access == MOSQ_ACL_SUBSCRIBE;
	if (spend(box) && (!filter || is_own(name, asked->topic)))
		return MOSQ_ERR_PLUGIN_DEFER;
	box->messages += !filter;
	box->filters += filter;
	return MOSQ_ERR_ACL_DENIED;
}

int mosquitto_plugin_version(int count, const int *versions)
{
	for (int at = 0; at < count; at++)
		if (versions[at] == 5)
			return 5;
	return -1;
}

int mosquitto_plugin_init(mosquitto_plugin_id_t *id, void **unused, struct mosquitto_opt *options, int count)
{
	(void)unused;
	(void)options;
	(void)count;
	plugin = id;
	return mosquitto_callback_register(plugin, MOSQ_EVT_ACL_CHECK, check, NULL, NULL);
}

int mosquitto_plugin_cleanup(void *unused, struct mosquitto_opt *options, int count)
{
	(void)unused;
	(void)options;
	(void)count;
	return mosquitto_callback_unregister(plugin, MOSQ_EVT_ACL_CHECK, check, NULL);
}
