/* cover.c - a stretch in one word: the end in us, as far as its bits go, and the length. */
#include "cover.h"

#define US 1000u
#define LENGTH_BITS 24			/* of us: 16 seconds */
#define LENGTH_MASK ((1ull << LENGTH_BITS) - 1)
#define END_MASK ((1ull << (64 - LENGTH_BITS)) - 1)

/* An end is never later than now: what stands there is how long ago it was. */
static struct span span_of(uint64_t word, uint64_t now)
{
	uint64_t ago = (now / US - (word >> LENGTH_BITS)) & END_MASK, length = (word & LENGTH_MASK) * US;
	struct span span = { 0, 0 };

	if (word == 0 || ago >= now / US)
		return span;
	span.end = (now / US - ago) * US;
	span.begin = span.end > length ? span.end - length : 0;
	return span;
}

/* Rounded so that it is never more than was charged. */
static uint64_t word_of(struct span span)
{
	uint64_t begin = (span.begin + US - 1) / US, end = span.end / US;
	uint64_t length = end > begin ? end - begin : 0;

	return (end & END_MASK) << LENGTH_BITS | (length < LENGTH_MASK ? length : LENGTH_MASK);
}

static uint64_t common_ns(struct span one, struct span other)
{
	uint64_t begin = one.begin > other.begin ? one.begin : other.begin;
	uint64_t end = one.end < other.end ? one.end : other.end;

	return end > begin ? end - begin : 0;
}

struct span span_later(struct span span, uint64_t ns)
{
	return (struct span){ span.begin + ns, span.end + ns };
}

/* Take a span away. There are fewer cuts than spans have room. */
static void cut(struct spans *spans, struct span away)
{
	unsigned int count = spans->count;

	for (unsigned int i = 0; i < count; i++) {
		struct span *span = &spans->at[i];
		uint64_t end = span->end;

		if (common_ns(*span, away) == 0)
			continue;
		if (span->begin < away.begin) {
			span->end = away.begin;
			if (end > away.end && spans->count <= COVER_STRETCHES)
				spans->at[spans->count++] = (struct span){ away.end, end };
		} else {
			span->begin = away.end < end ? away.end : end;
		}
	}
}

uint64_t spans_ns(const struct spans *spans)
{
	uint64_t ns = 0;

	for (unsigned int i = 0; i < spans->count; i++)
		ns += spans->at[i].end - spans->at[i].begin;
	return ns;
}

/* Stretches that touch become one. What is lost because two do this at the same time, or one is killed
 * meanwhile, is charged again. */
static struct span add(struct cover *cover, struct span span, uint64_t now)
{
	uint64_t oldest = UINT64_MAX, seen = 0;
	unsigned int place = 0;

	for (unsigned int i = 0; i < COVER_STRETCHES; i++) {
		uint64_t word = __atomic_load_n(&cover->stretch[i], __ATOMIC_RELAXED);
		struct span known = span_of(word, now);

		if (known.end != 0 && known.begin <= span.end + 2 * US && span.begin <= known.end + 2 * US) {
			span.begin = known.begin < span.begin ? known.begin : span.begin;
			span.end = known.end > span.end ? known.end : span.end;
			if (!__atomic_compare_exchange_n(&cover->stretch[i], &word, 0, 0, __ATOMIC_RELAXED,
							 __ATOMIC_RELAXED))
				continue;
			known.end = word = 0;
		}
		if (known.end < oldest) {
			oldest = known.end;
			place = i;
			seen = word;
		}
	}
	__atomic_compare_exchange_n(&cover->stretch[place], &seen, word_of(span), 0, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
	return span;
}

struct span cover_exact(struct cover *cover, struct spans *fresh, uint64_t now)
{
	struct span span = fresh->at[0];

	for (unsigned int i = 0; i < COVER_STRETCHES; i++)
		cut(fresh, span_of(__atomic_load_n(&cover->stretch[i], __ATOMIC_RELAXED), now));
	return add(cover, span, now);
}

uint64_t cover_certain(struct cover *cover, const struct spans *fresh, struct span whole, uint64_t late,
		       uint64_t now)
{
	struct span known[COVER_STRETCHES];
	uint64_t ns = spans_ns(fresh), first, last;

	for (unsigned int i = 0; i < COVER_STRETCHES; i++) {
		struct spans own = { 1, { span_of(__atomic_load_n(&cover->stretch[i], __ATOMIC_RELAXED), now) } };

		known[i] = own.at[0];
		for (unsigned int j = 0; j < i; j++)	/* two that did this at once: once is enough */
			cut(&own, known[j]);
		for (unsigned int j = 0; j < own.count; j++)
			for (unsigned int k = 0; k < fresh->count; k++) {
				first = common_ns(fresh->at[k], own.at[j]);
				last = common_ns(span_later(fresh->at[k], late), own.at[j]);
				first = first < last ? first : last;
				ns -= first < ns ? first : ns;
			}
	}
	if (whole.begin + late < whole.end)
		add(cover, (struct span){ whole.begin + late, whole.end }, now);
	return ns;
}
