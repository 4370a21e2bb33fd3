#include "go_asm.h"
#include "textflag.h"

// Nearly all inputs of a batch are alike: a host of up to 64 bytes and a canonical path. So each is
// looked at as one or two vectors of 64 bytes, without branches on the lengths in it: a
// misprediction in every third line would cost more than all other work. Loads are masked, so
// nothing outside of an input is read.

DATA https<>+0(SB)/8, $0x2f2f3a7370747468
GLOBL https<>(SB), RODATA|NOPTR, $8
DATA http<>+0(SB)/8, $0x2f2f3a7074746800
GLOBL http<>(SB), RODATA|NOPTR, $8
DATA marks<>+0(SB)/2, $0x012f
GLOBL marks<>(SB), RODATA|NOPTR, $2
DATA tagged<>+0(SB)/4, $0x01000000
GLOBL tagged<>(SB), RODATA|NOPTR, $4

// ONES sets the lowest bits of mask, and of k, as many as bits says, up to 64.
#define ONES(bits, mask, k) \
	MOVQ  $-1, mask         \
	BZHIQ bits, mask, mask  \
	KMOVQ mask, k

// STOPS sets stops to a bit for each byte of text that stops a path wherever it is, and pairs to a
// bit for each slash and dot.
#define STOPS(text, tmp, stops, pairs) \
	VMOVDQA64 text, tmp       \
	VPERMI2B  Z19, Z18, tmp   \
	VPORQ     text, tmp, tmp  \
	VPMOVB2M  tmp, K2         \
	KMOVQ     K2, stops       \
	VPORQ     text, Z17, tmp  \
	VPCMPEQB  tmp, Z16, K2    \
	KMOVQ     K2, pairs

// HASH sets hash to the hash of text, which is padded with zeros, under the key given: two rounds
// of AES for each quarter and two for their sum.
#define HASH(key, text, texty, textx, tmpy, tmpx, hash) \
	VPXORQ        key, text, text       \
	VAESENC       Z20, text, text       \
	VAESENC       Z20, text, text       \
	VEXTRACTI64X4 $1, text, tmpy        \
	VPXORQ        texty, tmpy, texty    \
	VEXTRACTI64X2 $1, texty, tmpx       \
	VPXORQ        textx, tmpx, textx    \
	VAESENC       X20, textx, textx     \
	VAESENC       X20, textx, textx     \
	VMOVD         textx, hash

// func locateVectors(b *batch, o *Origins, urls *[]byte, n int) (skipped uint64)
TEXT ·locateVectors(SB), NOSPLIT, $0-40
	MOVQ b+0(FP), DI
	MOVQ o+8(FP), AX
	MOVQ urls+16(FP), SI
	MOVQ $0, skipped+32(FP)
	XORL CX, CX

	MOVQ         Origins_slots(AX), R12
	MOVQ         (Origins_slots+8)(AX), R11
	DECQ         R11
	LEAQ         Origins_keys(AX), R13
	VPBROADCASTB marks<>+0(SB), Z16 // '/'
	VPBROADCASTB marks<>+1(SB), Z17 // with this bit set, a dot is a slash
	VMOVDQU64    ·pathStops+0(SB), Z18
	VMOVDQU64    ·pathStops+64(SB), Z19
	VMOVDQU64    (const_textSchemes*64)(R13), Z20

input:
	MOVQ (SI), R8
	MOVQ 8(SI), R9
	LEAQ -9(R9), AX
	CMPQ AX, $(const_maxPlain-9)
	JHI  skipped
	CMPB -1(R8)(R9*1), $0x20
	JLS  skipped

	// DX is the scheme, textHTTPS, textHTTP or textBare, and R10 where the text starts: 8, 7 or 0.
	MOVQ  (R8), AX
	XORL  R10, R10
	XORL  BX, BX
	CMPQ  AX, https<>(SB)
	SETEQ R10
	SHLQ  $8, AX
	CMPQ  AX, http<>(SB)
	SETEQ BX
	LEAQ  (BX)(BX*2), AX
	LEAQ  (AX)(R10*2), AX
	MOVL  $const_textBare, DX
	SUBL  AX, DX
	ADDQ  BX, R10
	SHLQ  $3, R10
	SUBQ  BX, R10
	MOVB  DX, batch_scheme(DI)(CX*1)
	MOVW  R10, batch_start(DI)(CX*2)
	MOVW  R9, batch_length(DI)(CX*2)
	ADDQ  R10, R8
	SUBQ  R10, R9

	// The first 64 bytes, whose slashes are in R14, and the next 64.
	MOVL       $64, R15
	MOVQ       R9, AX
	CMPQ       AX, R15
	CMOVQGT    R15, AX
	ONES(AX, BX, K1)
	VMOVDQU8.Z (R8), K1, Z0
	VPCMPEQB   Z0, Z16, K2
	KMOVQ      K2, R14
	XORL       R15, R15
	LEAQ       -64(R9), AX
	TESTQ      AX, AX
	CMOVQLT    R15, AX
	MOVL       $64, R15
	CMPQ       AX, R15
	CMOVQGT    R15, AX
	ONES(AX, R15, K3)
	VMOVDQU8.Z 64(R8), K3, Z1

	// The text ends at the first slash or at the end of the input.
	LEAQ   1(BX), AX
	ORQ    R14, AX
	JZ     skipped
	TZCNTQ AX, AX
	LEAQ   (R10)(AX*1), BX
	MOVW   BX, batch_end(DI)(CX*2)

	ONES(AX, BX, K1)
	VMOVDQU8.Z Z0, K1, Z2
	SHLL       $6, DX
	HASH((R13)(DX*1), Z2, Y2, X2, Y3, X3, DX)
	MOVL       DX, batch_hash(DI)(CX*4)
	ANDL       R11, DX
	PREFETCHT0 (R12)(DX*4)

	// The stops after the text, in BX and R14. A byte past the end of the input is a stop.
	STOPS(Z0, Z2, BX, DX)
	LEAQ     (R14)(R14*1), R15
	ANDQ     R15, DX
	ORQ      DX, BX
	SHRXQ    AX, BX, BX
	SHRQ     $1, BX
	SHRQ     $63, R14
	VPCMPEQB Z1, Z16, K2
	KMOVQ    K2, R15
	LEAQ     (R14)(R15*2), R14
	SHRQ     $63, R15
	VMOVDQA64 Z1, Z2
	VPERMI2B  Z19, Z18, Z2
	VPORQ     Z1, Z2, Z2
	VPMOVB2M  Z2, K2
	VPORQ     Z1, Z17, Z2
	VPCMPEQB  Z2, Z16, K3
	KMOVQ     K3, DX
	ANDQ      DX, R14
	KMOVQ     K2, DX
	ORQ       DX, R14

	TZCNTQ  BX, DX
	LEAQ    1(AX)(DX*1), DX
	TZCNTQ  R14, AX
	ADDQ    $64, AX
	TESTQ   BX, BX
	CMOVQEQ AX, DX
	ORQ     BX, R14
	JZ      long

stopped:
	CMPQ    DX, R9
	CMOVQGT R9, DX
	ADDQ    R10, DX
	MOVW    DX, batch_stop(DI)(CX*2)

next:
	INCQ CX
	ADDQ $24, SI
	CMPQ CX, n+24(FP)
	JLT  input
	VZEROUPPER
	RET

skipped:
	MOVQ skipped+32(FP), AX
	BTSQ CX, AX
	MOVQ AX, skipped+32(FP)
	JMP  next

	// There is no stop in the first 128 bytes. R15 says whether the last of them is a slash.
long:
	MOVL $128, DX

more:
	MOVQ       R9, AX
	SUBQ       DX, AX
	MOVL       $64, BX
	CMPQ       AX, BX
	CMOVQGT    BX, AX
	ONES(AX, BX, K1)
	VMOVDQU8.Z (R8)(DX*1), K1, Z0
	VPCMPEQB   Z0, Z16, K2
	KMOVQ      K2, AX
	LEAQ       (R15)(AX*2), R14
	SHRQ       $63, AX
	MOVQ       AX, R15
	STOPS(Z0, Z2, BX, AX)
	ANDQ       AX, R14
	ORQ        R14, BX
	TZCNTQ     BX, AX
	ADDQ       AX, DX
	TESTQ      BX, BX
	JZ         more
	JMP        stopped

// func probeVectors(b *batch, o *Origins, n int)
TEXT ·probeVectors(SB), NOSPLIT, $0-24
	MOVQ b+0(FP), DI
	MOVQ o+8(FP), AX
	MOVQ n+16(FP), SI
	XORL CX, CX
	XORL R9, R9

	MOVQ         Origins_slots(AX), R12
	MOVQ         (Origins_slots+8)(AX), R11
	SUBQ         $const_slotLine, R11
	MOVQ         Origins_texts(AX), R13
	VPBROADCASTD tagged<>(SB), Z17

probe:
	MOVL         batch_hash(DI)(CX*4), AX
	MOVL         AX, BX
	ANDL         R11, BX
	VPBROADCASTD AX, Z1
	VMOVDQU32    (R12)(BX*4), Z0
	VPXORD       Z0, Z1, Z1
	VPTESTMD     Z0, Z0, K1
	VPCMPUD      $1, Z17, Z1, K1, K2
	KMOVW        K2, DX
	TZCNTL       DX, R8
	ANDL         $(const_slotLine-1), R8
	ADDL         BX, R8
	MOVL         (R12)(R8*4), R8
	TESTL        DX, DX
	CMOVLEQ      R9, R8
	ANDL         $0xffffff, R8
	MOVL         R8, R10
	SHRL         $const_chunkShift, R10
	ANDL         $(const_chunkWords-1), R8
	MOVQ         (R13)(R10*8), R10
	LEAQ         (R10)(R8*8), R10
	MOVQ         R10, batch_at(DI)(CX*8)
	PREFETCHT0   (R10)
	PREFETCHT0   32(R10)
	INCQ         CX
	CMPQ         CX, SI
	JLT          probe
	VZEROUPPER
	RET

// func matchVectors(b *batch, urls *[]byte, n int) (same uint64)
TEXT ·matchVectors(SB), NOSPLIT, $0-32
	MOVQ b+0(FP), DI
	MOVQ urls+8(FP), SI
	XORL CX, CX
	XORL R12, R12

match:
	MOVWLZX    batch_end(DI)(CX*2), AX
	MOVWLZX    batch_start(DI)(CX*2), BX
	MOVBLZX    batch_scheme(DI)(CX*1), DX
	SUBL       BX, AX
	CMPL       AX, $64
	JHI        other
	MOVQ       batch_at(DI)(CX*8), R8
	ADDQ       (SI), BX
	MOVQ       (R8), R10
	MOVQ       R10, batch_header(DI)(CX*8)
	SHLL       $(const_headerScheme-const_headerLength), DX
	ORL        AX, DX
	SHRQ       $const_headerLength, R10
	ANDL       $0xffffff, R10
	XORL       DX, R10
	ONES(AX, R9, K1)
	VMOVDQU8.Z 8(R8), K1, Z0
	VMOVDQU8.Z (BX), K1, Z1
	VPCMPUB    $4, Z0, Z1, K2
	KMOVQ      K2, DX
	XORL       AX, AX
	ORQ        R10, DX
	SETEQ      AX
	SHLXQ      CX, AX, AX
	ORQ        AX, R12

other:
	INCQ CX
	ADDQ $24, SI
	CMPQ CX, n+16(FP)
	JLT  match
	VZEROUPPER
	MOVQ R12, same+24(FP)
	RET

// func hashVector(text *byte, n int, keys *vectorKeys, scheme int) uint32
TEXT ·hashVector(SB), NOSPLIT, $0-36
	MOVQ       text+0(FP), SI
	MOVQ       n+8(FP), AX
	MOVQ       keys+16(FP), R13
	MOVQ       scheme+24(FP), DX
	VMOVDQU64  (const_textSchemes*64)(R13), Z20
	ONES(AX, BX, K1)
	VMOVDQU8.Z (SI), K1, Z2
	SHLL       $6, DX
	HASH((R13)(DX*1), Z2, Y2, X2, Y3, X3, DX)
	VZEROUPPER
	MOVL       DX, ret+32(FP)
	RET
