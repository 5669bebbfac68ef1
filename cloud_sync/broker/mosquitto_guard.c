/*
 * A plugin for mosquitto 2.0 on both listeners: what its access lists cannot say.
 *
 * mosquitto's list does not look at SUBSCRIBE, so that one box can fill the broker's memory with filters, and mosquitto
 * has no rate of messages. Here each box, known by the name in its certificate, has its own filters alone and a number
 * of messages in a time, over all its connections. What is more is refused, as by the access list. Of a box that
 * controllers have blocked everything is refused, until they lift it; a file keeps that over a restart. docs/broker.md
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <mosquitto.h>
#include <mosquitto_broker.h>
#include <mosquitto_plugin.h>

#define PREFIX "edgegpu/v1/"
#define CONTROL_TOPIC "$CONTROL/edgegpu/v1"
#define BLOCKED_TOPIC "$SYS/broker/edgegpu/blocked"
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
	bool blocked, listed; /* refused altogether; in the list that is read at present */
};

/* A listener that has loaded this library: all of them share the boxes. */
struct listener {
	mosquitto_plugin_id_t *plugin;
	bool of_controllers;
};

static char *blocked_file;
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
	if (!name || strlen(name) > NAME_MAX_BYTES)
		return MOSQ_ERR_ACL_DENIED;
	struct box *box = box_of(name);
	if (!box)
		return MOSQ_ERR_ACL_DENIED;
	bool filter = asked->access == MOSQ_ACL_SUBSCRIBE;
	if (!filter && asked->access != MOSQ_ACL_WRITE)
		return box->blocked ? MOSQ_ERR_ACL_DENIED : MOSQ_ERR_PLUGIN_DEFER;
	bool within = spend(box);
	if (within && box->blocked) /* known: told of as a flood is what comes above its rate alone */
		return MOSQ_ERR_ACL_DENIED;
	if (within && (!filter || is_own(name, asked->topic)))
		return MOSQ_ERR_PLUGIN_DEFER;
	box->messages += !filter;
	box->filters += filter;
	return MOSQ_ERR_ACL_DENIED;
}

/* Read the blocked boxes, a name a line, as all that are blocked; return how many. What is no box's name counts for none. */
static unsigned long read_blocked(const char *text, size_t size, bool kick)
{
	char name[NAME_MAX_BYTES + 1];
	unsigned long count = 0;

	for (size_t slot = 0; slot < SLOTS; slot++)
		for (struct box *box = boxes[slot]; box; box = box->next)
			box->listed = false;
	while (size) {
		const char *end = memchr(text, '\n', size);
		size_t length = end ? (size_t)(end - text) : size;

		if (length && length <= NAME_MAX_BYTES && !memchr(text, '\0', length)) {
			memcpy(name, text, length);
			name[length] = '\0';
			struct box *box = box_of(name);
			if (box)
				box->listed = true;
		}
		length += end != NULL;
		text += length;
		size -= length;
	}
	for (size_t slot = 0; slot < SLOTS; slot++)
		for (struct box *box = boxes[slot]; box; box = box->next) {
			bool begins = box->listed && !box->blocked;

			box->blocked = box->listed;
			count += box->blocked;
			if (begins && kick) /* its certificate's name is its client-id; its will is not sent */
				mosquitto_kick_client_by_clientid(box->name, false);
		}
	return count;
}

/* Keep the list for the next start of the broker: whole or as it was. Return whether that was possible. */
static bool keep_blocked(const char *text, size_t size)
{
	char path[4096];

	if (!blocked_file || snprintf(path, sizeof(path), "%s.new", blocked_file) >= (int)sizeof(path))
		return !blocked_file;
	FILE *file = fopen(path, "w");
	if (!file)
		return false;
	bool done = fwrite(text, 1, size, file) == size;
	done = !fflush(file) && !fsync(fileno(file)) && done;
	done = !fclose(file) && done;
	return done && !rename(path, blocked_file);
}

/* Block the boxes that a controller has named here, and no others; tell controllers how many are blocked. */
static int control(int event, void *data, void *unused)
{
	struct mosquitto_evt_control *asked = data;
	char text[32];

	(void)event;
	(void)unused;
	if (!keep_blocked(asked->payload, asked->payloadlen))
		mosquitto_log_printf(MOSQ_LOG_ERR, "edgegpu: cannot write %s: a restart forgets which boxes are blocked",
				     blocked_file);
	int size = snprintf(text, sizeof(text), "%lu", read_blocked(asked->payload, asked->payloadlen, true));
	mosquitto_broker_publish_copy(NULL, BLOCKED_TOPIC, size, text, 0, false, NULL);
	return MOSQ_ERR_SUCCESS;
}

/* Read what the last run of the broker has kept; no file: no box is blocked. */
static void read_kept(void)
{
	static char text[1 << 20];
	FILE *file = fopen(blocked_file, "r");

	if (!file)
		return;
	unsigned long count = read_blocked(text, fread(text, 1, sizeof(text), file), false);
	fclose(file);
	if (count)
		mosquitto_log_printf(MOSQ_LOG_NOTICE, "edgegpu: %lu boxes are blocked", count);
}

int mosquitto_plugin_version(int count, const int *versions)
{
	for (int at = 0; at < count; at++)
		if (versions[at] == 5)
			return 5;
	return -1;
}

int mosquitto_plugin_init(mosquitto_plugin_id_t *id, void **data, struct mosquitto_opt *options, int count)
{
	struct listener *listener = calloc(1, sizeof(*listener));

	if (!listener)
		return MOSQ_ERR_NOMEM;
	*data = listener;
	listener->plugin = id;
	for (int at = 0; at < count; at++)
		if (!strcmp(options[at].key, "blocked")) {
			listener->of_controllers = true;
			free(blocked_file);
			blocked_file = strdup(options[at].value);
		}
	if (!listener->of_controllers)
		return mosquitto_callback_register(id, MOSQ_EVT_ACL_CHECK, check, NULL, NULL);
	if (!blocked_file)
		return MOSQ_ERR_NOMEM;
	read_kept();
	return mosquitto_callback_register(id, MOSQ_EVT_CONTROL, control, CONTROL_TOPIC, NULL);
}

int mosquitto_plugin_cleanup(void *data, struct mosquitto_opt *options, int count)
{
	struct listener *listener = data;
	int status;

	(void)options;
	(void)count;
	if (listener->of_controllers)
		status = mosquitto_callback_unregister(listener->plugin, MOSQ_EVT_CONTROL, control, CONTROL_TOPIC);
	else
		status = mosquitto_callback_unregister(listener->plugin, MOSQ_EVT_ACL_CHECK, check, NULL);
	free(listener);
	return status;
}
