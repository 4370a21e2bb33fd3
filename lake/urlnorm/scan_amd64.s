#include "textflag.h"

// A byte stops the scan if the entries of its two halves in these tables have a bit in common: 01
// for controls and bytes from 0x80 on, 02 for space " # %, 04 for < > ?, 08 for \ ^, 10 for `, 20
// for { | } and DEL.
DATA lowHalves<>+0(SB)/8, $0x0101030103030113
DATA lowHalves<>+8(SB)/8, $0x250d212d21010101
GLOBL lowHalves<>(SB), RODATA|NOPTR, $16

DATA highHalves<>+0(SB)/8, $0x2010080004020101
DATA highHalves<>+8(SB)/8, $0x0101010101010101
GLOBL highHalves<>(SB), RODATA|NOPTR, $16

DATA half<>+0(SB)/1, $0x0f
GLOBL half<>(SB), RODATA|NOPTR, $1
DATA one<>+0(SB)/1, $0x01
GLOBL one<>(SB), RODATA|NOPTR, $1
DATA slash<>+0(SB)/1, $0x2f
GLOBL slash<>(SB), RODATA|NOPTR, $1

// SCAN sets BX to a bit for each of the 32 bytes from s+i on that does not stop the scan. A slash
// or dot after a slash stops it.
#define SCAN \
	VMOVDQU   (SI)(AX*1), Y6   \
	VPCMPEQB  -1(SI)(AX*1), Y4, Y7 \
	VPOR      Y6, Y3, Y8       \
	VPCMPEQB  Y8, Y4, Y8       \
	VPAND     Y7, Y8, Y7       \
	VPAND     Y6, Y2, Y8       \
	VPSHUFB   Y8, Y0, Y8       \
	VPSRLW    $4, Y6, Y6       \
	VPAND     Y6, Y2, Y6       \
	VPSHUFB   Y6, Y1, Y6       \
	VPAND     Y6, Y8, Y6       \
	VPCMPEQB  Y6, Y5, Y6       \
	VPANDN    Y6, Y7, Y6       \
	VPMOVMSKB Y6, BX

// func scanPathAVX2(s *byte, start, n int) int
TEXT ·scanPathAVX2(SB), NOSPLIT, $0-32
	MOVQ s+0(FP), SI
	MOVQ start+8(FP), AX
	MOVQ n+16(FP), DX

	VBROADCASTI128 lowHalves<>(SB), Y0
	VBROADCASTI128 highHalves<>(SB), Y1
	VPBROADCASTB   half<>(SB), Y2
	VPBROADCASTB   one<>(SB), Y3
	VPBROADCASTB   slash<>(SB), Y4
	VPXOR          Y5, Y5, Y5
	LEAQ           -32(DX), R8
	CMPQ           AX, R8
	JGT            last

loop:
	SCAN
	NOTL BX
	TESTL BX, BX
	JNZ  stop
	ADDQ $32, AX
	CMPQ AX, R8
	JLE  loop

last:
	CMPQ AX, DX
	JGE  none

	// The last 32 bytes. Those before AX have been scanned.
	MOVQ AX, CX
	SUBQ R8, CX
	MOVQ R8, AX
	SCAN
	NOTL BX
	SHRL CX, BX
	SHLL CX, BX
	TESTL BX, BX
	JNZ  stop

none:
	VZEROUPPER
	MOVQ DX, ret+24(FP)
	RET

stop:
	VZEROUPPER
	BSFL BX, BX
	ADDQ BX, AX
	MOVQ AX, ret+24(FP)
	RET
