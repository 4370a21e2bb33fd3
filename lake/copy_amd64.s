#include "textflag.h"

// func copyEachAVX512(to, from *[]byte, n int)
//
// Up to 128 bytes are two moves under masks, whatever their number, so that no branch depends on it. Where pieces go is asked for before: it lies anywhere in the
// memory, and a core waits for many lines of it at once as long as for one. To read there would cost more than the wait: memory that is new is then first mapped to
// a page of zeros, which the write that follows has to copy, and all cores to forget.
TEXT ·copyEachAVX512(SB), NOSPLIT, $0-24
	MOVQ  to+0(FP), R8
	MOVQ  from+8(FP), R9
	MOVQ  n+16(FP), R10
	MOVQ  $-1, R11
	XORL  R12, R12
	TESTQ R10, R10
	JZ    done
	MOVQ  R8, DX
	MOVQ  R10, BX

ask:
	MOVQ (DX), DI
	BYTE $0x0F; BYTE $0x0D; BYTE $0x0F // PREFETCHW (DI)
	ADDQ $24, DX
	DECQ BX
	JNZ  ask

next:
	MOVQ (R8), DI
	MOVQ (R9), SI
	MOVQ 8(R9), CX
	CMPQ CX, $128
	JHI  long

last:
	BZHIQ      CX, R11, AX // all bits from 64 on
	SUBQ       $64, CX
	CMOVQLT    R12, CX
	BZHIQ      CX, R11, BX
	KMOVQ      AX, K1
	KMOVQ      BX, K2
	VMOVDQU8.Z (SI), K1, Z0
	VMOVDQU8.Z 64(SI), K2, Z1
	VMOVDQU8   Z0, K1, (DI)
	VMOVDQU8   Z1, K2, 64(DI)
	ADDQ       $24, R8
	ADDQ       $24, R9
	DECQ       R10
	JNZ        next

done:
	VZEROUPPER
	RET

long:
	VMOVDQU64 (SI), Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 Z0, (DI)
	VMOVDQU64 Z1, 64(DI)
	ADDQ      $128, SI
	ADDQ      $128, DI
	SUBQ      $128, CX
	CMPQ      CX, $128
	JHI       long
	JMP       last

// func copyTwiceAVX512(a, b, from *byte, n int)
//
// What is loaded is masked, what is stored is not: a core takes long for that.
TEXT ·copyTwiceAVX512(SB), NOSPLIT, $0-32
	MOVQ       a+0(FP), DI
	MOVQ       b+8(FP), R8
	MOVQ       from+16(FP), SI
	MOVQ       n+24(FP), CX
	MOVQ       $-1, R11
	BZHIQ      CX, R11, AX // all bits from 64 on
	KMOVQ      AX, K1
	VMOVDQU8.Z (SI), K1, Z0
	VMOVDQU64  Z0, (DI)
	VMOVDQU64  Z0, (R8)
	SUBQ       $64, CX
	JGT        more
	VZEROUPPER
	RET

more:
	BZHIQ      CX, R11, AX
	KMOVQ      AX, K1
	VMOVDQU8.Z 64(SI), K1, Z0
	VMOVDQU64  Z0, 64(DI)
	VMOVDQU64  Z0, 64(R8)
	VZEROUPPER
	RET
