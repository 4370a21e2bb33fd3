#include "go_asm.h"
#include "textflag.h"

// ADDRESS sets base to the address of an offset in chunks, and changes offset.
#define ADDRESS(offset, chunks, base, scratch) \
	MOVL offset, scratch                        \
	SHRL $const_chunkBits, scratch              \
	ANDL $((1<<const_chunkBits)-1), offset      \
	LEAQ (scratch)(scratch*2), scratch          \
	MOVQ (chunks)(scratch*8), base              \
	ADDQ offset, base

// func nameLines(order *hostRef, n int, hosts *bufferHost, names, chunks *[]byte)
TEXT ·nameLines(SB), NOSPLIT, $0-40
	MOVQ order+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ hosts+16(FP), DI
	MOVQ names+24(FP), R9
	MOVQ chunks+32(FP), R10
	MOVL $512, R8 // bytes of rows; the processor itself prefetches what follows

name:
	MOVL        8(SI), AX
	SHLQ        $5, AX
	ADDQ        DI, AX
	MOVL        12(AX), R11 // name
	ADDRESS(R11, R9, BX, R12)
	MOVWLZX     16(AX), DX  // length
	PREFETCHT0  (BX)
	PREFETCHT0  -1(BX)(DX*1)
	MOVL        24(AX), DX  // bytes
	TESTQ       DX, DX
	JZ          more
	MOVL        20(AX), R11 // data
	ADDRESS(R11, R10, BX, R12)
	CMPQ        DX, R8
	CMOVQHI     R8, DX

line:
	PREFETCHT0  (BX)
	ADDQ        $64, BX
	SUBQ        $64, DX
	JHI         line
	PREFETCHT0  -1(BX)(DX*1) // the last byte: DX is at most 0

more:
	ADDQ        $16, SI
	DECQ        CX
	JNZ         name
	RET

// func offsetLines(offsets *uint32, n int, chunks *[]byte)
TEXT ·offsetLines(SB), NOSPLIT, $0-24
	MOVQ offsets+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ chunks+16(FP), DI

offset:
	MOVL        (SI), AX
	ADDRESS(AX, DI, DX, BX)
	PREFETCHT1  (DX)
	PREFETCHT1  64(DX)
	ADDQ        $4, SI
	DECQ        CX
	JNZ         offset
	RET

// func refLines(refs *rowRef, n int, chunks *[]byte)
TEXT ·refLines(SB), NOSPLIT, $0-24
	MOVQ refs+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ chunks+16(FP), DI

ref:
	MOVL        8(SI), BX
	MOVL        12(SI), AX
	LEAQ        (BX)(BX*2), BX
	ADDQ        (DI)(BX*8), AX
	PREFETCHT0  -4(AX)
	PREFETCHT0  60(AX)
	ADDQ        $16, SI
	DECQ        CX
	JNZ         ref
	RET
