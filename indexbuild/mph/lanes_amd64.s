#include "go_asm.h"
#include "textflag.h"

// One key in each 64-bit lane. lanes_amd64.go says what each routine computes, and why the lanes
// behind the last key do no harm.

DATA words<>+0(SB)/8, $0
DATA words<>+8(SB)/8, $64
DATA words<>+16(SB)/8, $128
DATA words<>+24(SB)/8, $192
DATA words<>+32(SB)/8, $256
DATA words<>+40(SB)/8, $320
DATA words<>+48(SB)/8, $384
DATA words<>+56(SB)/8, $448
GLOBL words<>(SB), RODATA|NOPTR, $64

DATA lanes<>+0(SB)/8, $0
DATA lanes<>+8(SB)/8, $1
DATA lanes<>+16(SB)/8, $2
DATA lanes<>+24(SB)/8, $3
DATA lanes<>+32(SB)/8, $4
DATA lanes<>+40(SB)/8, $5
DATA lanes<>+48(SB)/8, $6
DATA lanes<>+56(SB)/8, $7
GLOBL lanes<>(SB), RODATA|NOPTR, $64

// CONSTANTS sets the inputs of MUM and LOCATE from the factor in AX: Z30 is the factor, Z29 its
// upper half, Z31 the mask of lower halves, Z28 the number of bits in a line.
#define CONSTANTS \
	VPBROADCASTQ AX, Z30       \
	VPSRLQ       $32, Z30, Z29 \
	MOVL         $0xffffffff, AX \
	VPBROADCASTQ AX, Z31       \
	MOVL         $const_lineBits, AX \
	VPBROADCASTQ AX, Z28

// MUM sets Z1 to mum(Z0, factor), from four products of halves.
#define MUM \
	VPSRLQ     $32, Z0, Z1     \
	VPMULUDQ   Z30, Z0, Z2     \
	VPMULUDQ   Z29, Z0, Z3     \
	VPMULUDQ   Z30, Z1, Z4     \
	VPMULUDQ   Z29, Z1, Z1     \
	VPSRLQ     $32, Z2, Z5     \
	VPADDQ     Z5, Z4, Z4      \
	VPANDQ     Z31, Z4, Z5     \
	VPADDQ     Z5, Z3, Z3      \
	VPSRLQ     $32, Z4, Z4     \
	VPADDQ     Z4, Z1, Z1      \
	VPSRLQ     $32, Z3, Z5     \
	VPADDQ     Z5, Z1, Z1      \
	VPSLLQ     $32, Z3, Z3     \
	VPANDQ     Z31, Z2, Z2     \
	VPTERNLOGQ $0x96, Z2, Z3, Z1

// LOCATE sets Z4 to the line and Z5 to the bit of the hash Z1 on a level of Z6 lines, as locate
// does. Z6 is less than 2^32.
#define LOCATE \
	VPSRLQ   $32, Z1, Z2 \
	VPMULUDQ Z6, Z1, Z3  \
	VPMULUDQ Z6, Z2, Z4  \
	VPSRLQ   $32, Z3, Z5 \
	VPADDQ   Z5, Z4, Z4  \
	VPMULUDQ Z28, Z3, Z3 \
	VPMULUDQ Z28, Z4, Z5 \
	VPSRLQ   $32, Z3, Z3 \
	VPADDQ   Z3, Z5, Z5  \
	VPSRLQ   $32, Z5, Z5 \
	VPSRLQ   $32, Z4, Z4

// OFFSET sets Z4 to the bit offset in all lines of the hash Z1 on the level Z7, an openLevel as
// loaded.
#define OFFSET \
	VPSRLQ $32, Z7, Z6  \
	LOCATE               \
	VPANDQ Z31, Z7, Z7  \
	VPADDQ Z7, Z4, Z4   \
	VPSLLQ $9, Z4, Z4   \
	VPADDQ Z5, Z4, Z4

// PREFETCH prefetches the lines of the bit offsets at CX; lines begin at DX.
#define PREFETCH1(off) \
	MOVQ        off(CX), R8 \
	SHRQ        $3, R8      \
	PREFETCHT0  (DX)(R8*1)

#define PREFETCH \
	PREFETCH1(0)  \
	PREFETCH1(8)  \
	PREFETCH1(16) \
	PREFETCH1(24) \
	PREFETCH1(32) \
	PREFETCH1(40) \
	PREFETCH1(48) \
	PREFETCH1(56)

// func locateFirstAVX512(b *batch, n int, seed, bucketBits uint64, dir *openBucket, lines *byte)
TEXT ·locateFirstAVX512(SB), NOSPLIT, $0-48
	MOVQ b+0(FP), SI
	MOVQ n+8(FP), BX
	MOVQ dir+32(FP), DI
	MOVQ lines+40(FP), DX

	VPBROADCASTQ seed+16(FP), Z27
	MOVQ         $const_hashMul, AX
	CONSTANTS
	MOVQ         bucketBits+24(FP), AX
	VMOVQ        AX, X26
	MOVQ         $64, R9
	SUBQ         AX, R9
	VMOVQ        R9, X25
	VMOVDQU64    lanes<>(SB), Z24
	MOVQ         $8, AX
	VPBROADCASTQ AX, Z23
	MOVQ         $openBucket__size, AX
	VPBROADCASTQ AX, Z22
	LEAQ         batch_pos(SI), CX

first:
	VMOVDQU64  batch_key(SI), Z0
	VPXORQ     Z27, Z0, Z0
	MUM
	VPSRLQ     X25, Z1, Z8
	VPSLLQ     X26, Z1, Z1
	VPMULUDQ   Z22, Z8, Z8
	KXNORW     K1, K1, K1
	VPGATHERQQ openBucket_levels(DI)(Z8*1), K1, Z7
	VPSLLQ     $32, Z8, Z8
	VPORQ      Z24, Z8, Z8
	VPADDQ     Z23, Z24, Z24
	VMOVDQU64  Z8, batch_tag(SI)
	OFFSET
	VMOVDQU64  Z4, (CX)
	PREFETCH
	ADDQ       $64, SI
	ADDQ       $64, CX
	SUBQ       $8, BX
	JGT        first
	VZEROUPPER
	RET

// func locateNextAVX512(b *batch, n int, seed, mul uint64, levels *openLevel, lines *byte)
TEXT ·locateNextAVX512(SB), NOSPLIT, $0-48
	MOVQ b+0(FP), SI
	MOVQ n+8(FP), BX
	MOVQ levels+32(FP), DI
	MOVQ lines+40(FP), DX

	VPBROADCASTQ seed+16(FP), Z27
	MOVQ         mul+24(FP), AX
	CONSTANTS
	LEAQ         batch_pos(SI), CX

next:
	VMOVDQU64  batch_tag(SI), Z8
	VPSRLQ     $32, Z8, Z8
	KXNORW     K1, K1, K1
	VPGATHERQQ (DI)(Z8*1), K1, Z7
	VMOVDQU64  batch_key(SI), Z0
	VPXORQ     Z27, Z0, Z0
	MUM
	OFFSET
	VMOVDQU64  Z4, (CX)
	PREFETCH
	ADDQ       $64, SI
	ADDQ       $64, CX
	SUBQ       $8, BX
	JGT        next
	VZEROUPPER
	RET

// LANES sets K1 to the lanes of the next eight that have one of the remaining BX keys, and AX to
// their number.
#define LANES \
	MOVL    $8, AX    \
	CMPQ    BX, AX    \
	CMOVQLT BX, AX    \
	MOVL    $-1, R8   \
	BZHIL   AX, R8, R8 \
	KMOVW   R8, K1

// func partitionAVX512(b *batch, n, found int, lines *byte) (left int)
TEXT ·partitionAVX512(SB), NOSPLIT, $0-40
	MOVQ b+0(FP), SI
	MOVQ n+8(FP), BX
	MOVQ found+16(FP), CX
	MOVQ lines+24(FP), DX

	LEAQ         (SI)(CX*8), DI
	MOVQ         SI, R10
	MOVL         $1, AX
	VPBROADCASTQ AX, Z31

part:
	LANES
	VMOVDQU64     batch_pos(SI), Z0
	VMOVDQU64     batch_key(SI), Z1
	VMOVDQU64     batch_tag(SI), Z2
	VPSRLQ        $6, Z0, Z3
	KMOVW         K1, K2
	VPXORQ        Z4, Z4, Z4
	VPGATHERQQ    (DX)(Z3*8), K2, Z4
	VPRORVQ       Z0, Z4, Z4
	VPTESTMQ      Z31, Z4, K1, K3
	KANDNW        K1, K3, K4
	VPCOMPRESSQ.Z Z0, K3, Z5
	VPCOMPRESSQ.Z Z2, K3, Z6
	VPCOMPRESSQ.Z Z1, K4, Z1
	VPCOMPRESSQ.Z Z2, K4, Z2
	VMOVDQU64     Z5, batch_foundPos(DI)
	VMOVDQU64     Z6, batch_foundTag(DI)
	VMOVDQU64     Z1, batch_key(R10)
	VMOVDQU64     Z2, batch_tag(R10)
	KMOVW         K3, AX
	POPCNTL       AX, AX
	LEAQ          (DI)(AX*8), DI
	KMOVW         K4, AX
	POPCNTL       AX, AX
	LEAQ          (R10)(AX*8), R10
	ADDQ          $64, SI
	SUBQ          $8, BX
	JGT           part

	SUBQ b+0(FP), R10
	SHRQ $3, R10
	MOVQ R10, left+32(FP)
	VZEROUPPER
	RET

// COUNT sets out to the number of ones before the bit in each word of its line. To the last lane it
// adds the sample, which is the upper half of the last word. K7 is the last lane.
#define COUNT(off, line, out) \
	MOVQ         batch_foundPos+off(SI), AX \
	SHRQ         $9, AX           \
	SHLQ         $6, AX           \
	VMOVDQU64    (DX)(AX*1), line \
	VPANDQ.BCST  batch_foundPos+off(SI), Z30, Z0 \
	VPSUBUSW     Z29, Z0, Z0      \
	VPSLLVQ      Z0, Z31, Z0      \
	VPANDNQ      line, Z0, Z0     \
	VPOPCNTQ     Z0, out          \
	VPSRLQ.Z     $32, line, K7, line \
	VPADDQ       line, out, out

// PAIRS and TWINS add up the lanes of vectors: PAIRS interleaves the sums of neighbours in a and b,
// and TWINS the sums of neighbouring 128-bit lanes.
#define PAIRS(a, b, out) \
	VPUNPCKLQDQ b, a, Z0 \
	VPUNPCKHQDQ b, a, Z1 \
	VPADDQ      Z1, Z0, out

#define TWINS(a, b, out) \
	VSHUFI64X2 $0x88, b, a, Z0 \
	VSHUFI64X2 $0xdd, b, a, Z1 \
	VPADDQ     Z1, Z0, out

// PUT stores the slot of a found key in slots, by index.
#define PUT(off) \
	MOVL batch_foundTag+off(SI), R8 \
	MOVQ batch_foundPos+off(SI), R9 \
	MOVQ R9, (DI)(R8*8)

// func rankAVX512(b *batch, n int, dir *openBucket, lines *byte, slots *uint64) (bad int)
TEXT ·rankAVX512(SB), NOSPLIT, $0-48
	MOVQ b+0(FP), SI
	MOVQ n+8(FP), BX
	MOVQ dir+16(FP), CX
	MOVQ lines+24(FP), DX
	MOVQ slots+32(FP), DI

	VPTERNLOGQ   $0xff, Z31, Z31, Z31
	MOVL         $511, AX
	VPBROADCASTQ AX, Z30
	VMOVDQU64    words<>(SB), Z29
	VPSRLQ       $32, Z31, Z28
	MOVL         $0x80, AX
	KMOVW        AX, K7

rank:
	LANES
	COUNT(0, Z8, Z16)
	COUNT(8, Z9, Z17)
	COUNT(16, Z10, Z18)
	COUNT(24, Z11, Z19)
	COUNT(32, Z12, Z20)
	COUNT(40, Z13, Z21)
	COUNT(48, Z14, Z22)
	COUNT(56, Z15, Z23)
	PAIRS(Z16, Z17, Z16)
	PAIRS(Z18, Z19, Z18)
	PAIRS(Z20, Z21, Z20)
	PAIRS(Z22, Z23, Z22)
	TWINS(Z16, Z18, Z16)
	TWINS(Z20, Z22, Z20)
	TWINS(Z16, Z20, Z16)

	VPSRLQ     $32, batch_foundTag(SI), Z1
	KMOVW      K1, K2
	VPXORQ     Z2, Z2, Z2
	VPGATHERQQ (CX)(Z1*1), K2, Z2   // slot and keys of an openBucket
	VPSRLQ     $32, Z2, Z3
	VPCMPUQ    $5, Z3, Z16, K1, K3  // not less
	KORTESTW   K3, K3
	JNZ        wrong
	VPANDQ     Z28, Z2, Z2
	VPADDQ     Z2, Z16, Z16
	VMOVDQU64  Z16, batch_foundPos(SI)
	TESTQ      DI, DI
	JZ         ranked
	CMPQ       BX, $8
	JLT        last
	PUT(0)
	PUT(8)
	PUT(16)
	PUT(24)
	PUT(32)
	PUT(40)
	PUT(48)
	PUT(56)

ranked:
	ADDQ $64, SI
	SUBQ $8, BX
	JGT  rank
	JMP  done

last:
	PUT(0)
	ADDQ $8, SI
	DECQ BX
	JNZ  last

done:
	MOVQ $-1, bad+40(FP)
	VZEROUPPER
	RET

wrong:
	KMOVW   K3, AX
	BSFL    AX, AX
	SUBQ    b+0(FP), SI
	SHRQ    $3, SI
	ADDQ    SI, AX
	MOVQ    AX, bad+40(FP)
	VZEROUPPER
	RET

// func ordinalsAVX512(b *batch, keys []Key, records *byte, slots, domains uint64, ordinals *uint32)
// (odd int)
TEXT ·ordinalsAVX512(SB), NOSPLIT, $0-72
	MOVQ b+0(FP), SI
	MOVQ keys_base+8(FP), DX
	MOVQ keys_len+16(FP), BX
	MOVQ records+32(FP), CX
	MOVQ ordinals+56(FP), DI
	XORQ R9, R9

	VPBROADCASTQ slots+40(FP), Z31
	VPBROADCASTQ domains+48(FP), Z30
	VPTERNLOGQ   $0xff, Z29, Z29, Z29
	VPSRLQ       $32, Z29, Z28
	VMOVDQU64    lanes<>(SB), Z27
	VPADDQ       Z27, Z27, Z27        // 0, 2, ...: words of eight Keys with domain_ids
	VPSUBQ       Z29, Z27, Z26        // 1, 3, ...: words with check bits and padding

eight:
	LANES
	LEAQ      (AX)(AX*1), AX
	MOVL      $-1, R8
	BZHIL     AX, R8, R8
	KMOVW     R8, K2
	SHRL      $8, R8
	KMOVW     R8, K3
	VMOVDQU64.Z (DX), K2, Z0
	VMOVDQU64.Z 64(DX), K3, Z1
	VMOVDQA64 Z27, Z2
	VPERMI2Q  Z1, Z0, Z2
	VMOVDQA64 Z26, Z3
	VPERMI2Q  Z1, Z0, Z3
	VPANDQ    Z28, Z3, Z3

	VMOVDQU64.Z batch_slot(SI), K1, Z4
	VPCMPUQ    $1, Z31, Z4, K1, K4 // a record exists
	VPSLLQ     $4, Z4, Z4
	KMOVW      K4, K2
	KMOVW      K4, K3
	VPXORQ     Z5, Z5, Z5
	VPXORQ     Z6, Z6, Z6
	VPGATHERQQ (CX)(Z4*1), K2, Z5  // domain_ids
	VPGATHERQQ 8(CX)(Z4*1), K3, Z6 // check bits and ordinals
	VPCMPEQQ   Z5, Z2, K4, K4      // of the key
	VPANDQ     Z28, Z6, Z7
	VPCMPEQQ   Z7, Z3, K4, K5
	VPSRLQ     $32, Z6, Z6
	VPCMPUQ    $1, Z30, Z6, K5, K5 // and an ordinal
	KXORW      K4, K5, K6
	KMOVW      K6, AX
	POPCNTL    AX, AX
	ADDQ       AX, R9

	VMOVDQA64 Z29, Z8
	VMOVDQA64 Z6, K5, Z8
	VPMOVQD   Z8, K1, (DI)
	ADDQ      $64, SI
	ADDQ      $128, DX
	ADDQ      $32, DI
	SUBQ      $8, BX
	JGT       eight
	MOVQ      R9, odd+64(FP)
	VZEROUPPER
	RET
