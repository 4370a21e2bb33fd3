#include "go_asm.h"
#include "textflag.h"

// func askHostsPrefetch(order *hostRef, n int, hosts *bufferHost)
TEXT ·askHostsPrefetch(SB), NOSPLIT, $0-24
	MOVQ order+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ hosts+16(FP), DI

host:
	MOVL        8(SI), AX
	LEAQ        (AX)(AX*8), AX // of 72 bytes
	PREFETCHT0  (DI)(AX*8)
	PREFETCHT0  64(DI)(AX*8)
	ADDQ        $16, SI
	DECQ        CX
	JNZ         host
	RET

// func askNamesPrefetch(order *hostRef, n int, hosts *bufferHost)
TEXT ·askNamesPrefetch(SB), NOSPLIT, $0-24
	MOVQ order+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ hosts+16(FP), DI
	MOVL $512, R8 // behind that much the core itself knows what comes next

name:
	MOVL        8(SI), AX
	LEAQ        (AX)(AX*8), AX
	MOVQ        (DI)(AX*8), BX   // domain
	MOVQ        8(DI)(AX*8), DX
	PREFETCHT0  (BX)
	PREFETCHT0  -1(BX)(DX*1)
	MOVQ        16(DI)(AX*8), BX // host
	MOVQ        24(DI)(AX*8), DX
	PREFETCHT0  (BX)
	PREFETCHT0  -1(BX)(DX*1)
	MOVQ        48(DI)(AX*8), BX // data
	MOVQ        56(DI)(AX*8), DX
	TESTQ       DX, DX
	JZ          more
	CMPQ        DX, R8
	CMOVQHI     R8, DX

line:
	PREFETCHT0  (BX)
	ADDQ        $64, BX
	SUBQ        $64, DX
	JHI         line
	PREFETCHT0  -1(BX)(DX*1) // the last byte, as DX is not above 0

more:
	ADDQ        $16, SI
	DECQ        CX
	JNZ         name
	RET

// func askRowsPrefetch(places *uint32, n int, chunks *[]byte)
TEXT ·askRowsPrefetch(SB), NOSPLIT, $0-24
	MOVQ places+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ chunks+16(FP), DI

place:
	MOVL        (SI), AX
	MOVL        AX, BX
	SHRL        $const_chunkBits, BX
	ANDL        $((1<<const_chunkBits)-1), AX
	LEAQ        (BX)(BX*2), BX
	ADDQ        (DI)(BX*8), AX
	PREFETCHT0  (AX)
	PREFETCHT0  64(AX)
	ADDQ        $4, SI
	DECQ        CX
	JNZ         place
	RET

// func askRefsPrefetch(refs *rowRef, n int, datas *[]byte)
TEXT ·askRefsPrefetch(SB), NOSPLIT, $0-24
	MOVQ refs+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ datas+16(FP), DI

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
