/* cuda_array.c - arrays and mipmapped arrays, by the size that their descriptor gives.
 *
 * The driver lays arrays out in tiles, and says how large one is for few kinds only; what it adds
 * does not count. A format that is not known counts as the largest. */
#include "virtual.h"

#define LARGEST_TEXEL 16

static uint64_t texel_bytes(int format, unsigned int channels)
{
	switch (format) {
	case 0x01: case 0x08:			/* 8 bits, unsigned and signed */
		return channels;
	case 0x02: case 0x09: case 0x10:	/* 16 bits, and half */
		return 2ull * channels;
	case 0x03: case 0x0a: case 0x20:	/* 32 bits, and float */
		return 4ull * channels;
	}
	return LARGEST_TEXEL;
}

static uint64_t saturating(uint64_t one, uint64_t other)
{
	uint64_t product;

	return __builtin_mul_overflow(one, other, &product) ? UINT64_MAX : product;
}

/* A side of 0 is one that the array does not have. */
static uint64_t side(uint64_t length)
{
	return length != 0 ? length : 1;
}

static uint64_t array_bytes(const struct CUarray3d_descriptor *wanted)
{
	uint64_t area = saturating(side(wanted->width), side(wanted->height));

	if ((wanted->flags & (CU_ARRAY3D_SPARSE | CU_ARRAY3D_DEFERRED)) != 0)
		return 0;		/* cuMemCreate takes it */
	return saturating(saturating(area, side(wanted->depth)),
			  texel_bytes(wanted->format, wanted->channels));
}

static uint64_t mipmap_bytes(struct CUarray3d_descriptor wanted, unsigned int levels)
{
	bool layers = (wanted.flags & (CU_ARRAY3D_LAYERED | CU_ARRAY3D_CUBEMAP)) != 0;
	uint64_t total = 0;

	for (unsigned int level = 0; level < levels && level < 64; level++) {
		uint64_t bytes = array_bytes(&wanted);

		if (__builtin_add_overflow(total, bytes, &total))
			return UINT64_MAX;
		if (wanted.width <= 1 && wanted.height <= 1 && (layers || wanted.depth <= 1))
			break;
		wanted.width /= 2;
		wanted.height /= 2;
		if (!layers)
			wanted.depth /= 2;
	}
	return total;
}

/* Of both widths: sizes have 32 bits in the oldest forms. */
#define CREATE(name, out, wanted, depth, flags)							\
	do {											\
		struct charge charge;								\
		CUarray array;									\
		CUresult ret;									\
												\
		if (NESTED || (out) == NULL || (wanted) == NULL)				\
			return DRIVER(name)(out, wanted);					\
		const __typeof__(*(wanted)) copy = READ_ONCE(wanted);				\
		array = *(out);									\
		if (!charge_current(&charge, array_bytes(&(struct CUarray3d_descriptor){	\
			copy.width, copy.height, depth, copy.format, copy.channels, flags })))	\
			return charge.why;							\
		ret = CALL(name, &array, &copy);						\
		ret = charge_settle(&charge, ret, LEDGER_ARRAY, (uintptr_t)array);		\
		*(out) = array;									\
		return ret;									\
	} while (0)

CUresult EXPORT cuArrayCreate(CUarray *out, const struct CUarray_descriptor_v1 *wanted)
{
	CREATE(cuArrayCreate, out, wanted, 0, 0);
}

CUresult EXPORT cuArrayCreate_v2(CUarray *out, const struct CUarray_descriptor *wanted)
{
	CREATE(cuArrayCreate_v2, out, wanted, 0, 0);
}

CUresult EXPORT cuArray3DCreate(CUarray *out, const struct CUarray3d_descriptor_v1 *wanted)
{
	CREATE(cuArray3DCreate, out, wanted, copy.depth, copy.flags);
}

CUresult EXPORT cuArray3DCreate_v2(CUarray *out, const struct CUarray3d_descriptor *wanted)
{
	CREATE(cuArray3DCreate_v2, out, wanted, copy.depth, copy.flags);
}

CUresult EXPORT cuArrayDestroy(CUarray array)
{
	struct ledger_entry entry;
	struct hold tiles;

	if (NESTED)
		return DRIVER(cuArrayDestroy)(array);
	entry = charge_release(LEDGER_ARRAY, (uintptr_t)array);
	hold_array(&tiles, array);
	return charge_released(&entry, hold_ended(&tiles, CALL(cuArrayDestroy, array)));
}

CUresult EXPORT cuMipmappedArrayCreate(CUmipmappedArray *out,
				       const struct CUarray3d_descriptor *wanted, unsigned int levels)
{
	struct CUarray3d_descriptor copy;
	struct charge charge;
	CUmipmappedArray array;
	CUresult ret;

	if (NESTED || out == NULL || wanted == NULL)
		return DRIVER(cuMipmappedArrayCreate)(out, wanted, levels);
	copy = READ_ONCE(wanted);
	array = *out;
	if (!charge_current(&charge, mipmap_bytes(copy, levels)))
		return charge.why;
	ret = CALL(cuMipmappedArrayCreate, &array, &copy, levels);
	ret = charge_settle(&charge, ret, LEDGER_MIPMAP, (uintptr_t)array);
	*out = array;
	return ret;
}

CUresult EXPORT cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	struct ledger_entry entry;
	struct hold tiles;

	if (NESTED)
		return DRIVER(cuMipmappedArrayDestroy)(array);
	entry = charge_release(LEDGER_MIPMAP, (uintptr_t)array);
	hold_array(&tiles, array);
	return charge_released(&entry, hold_ended(&tiles, CALL(cuMipmappedArrayDestroy, array)));
}
