#include "go_asm.h"
#include "textflag.h"

// PREFETCH_NUMBER prefetches the number of the host of the row at R14 and moves R14 to the next
// row. It does nothing if R14 is not below R8. After a row longer than maxSpread it sets R14 to R8.
#define PREFETCH_NUMBER(short, done) \
	CMPQ       R14, R8              \
	JCC        done                 \
	MOVL       (R14), BX            \
	PREFETCHT0 (R9)(BX*4)           \
	MOVL       4(R14), AX           \
	MOVL       AX, CX               \
	SHRL       $2, AX               \
	LEAQ       8(R14)(AX*1), R14    \
	TESTL      $2, CX               \
	JZ         done                 \
	CMPL       AX, $const_maxSpread \
	JLS        short                \
	MOVQ       R8, R14              \
	JMP        done                 \
short:                              \
	MOVL       (R14), CX            \
	LEAQ       4(R14)(CX*1), R14    \
done:

// func spreadVectors(rows *byte, n int, numbers *uint32, known int, open *[Partitions][]byte) (done
// int)
//
// It copies two vectors of every row, without a branch on its length. The next row of the partition
// overwrites what is after the row's end. Numbers of hosts are prefetched 32 rows ahead. After each
// row the memory of the partition's next row is prefetched.
TEXT ·spreadVectors(SB), NOSPLIT, $0-48
	MOVQ rows+0(FP), SI
	MOVQ n+8(FP), R8
	MOVQ numbers+16(FP), R9
	MOVQ known+24(FP), R10
	MOVQ open+32(FP), R11
	ADDQ SI, R8
	MOVQ SI, R14
	MOVL $32, R15

ahead:
	PREFETCH_NUMBER(short, prefetched)
	DECL R15
	JNZ  ahead

row:
	CMPQ  SI, R8
	JCC   done
	PREFETCHT0 2048(SI)
	PREFETCHT0 2112(SI)
	PREFETCH_NUMBER(nextShort, next)
	MOVL  (SI), BX            // host
	MOVL  4(SI), R13          // header
	MOVL  R13, AX
	SHRL  $2, AX
	CMPL  AX, $const_maxSpread
	JHI   done
	TESTL $2, R13
	JNZ   suffix

sized:
	CMPQ BX, R10
	JCC  done
	MOVL (R9)(BX*4), CX
	MOVL CX, DI
	SHRL $24, DI
	LEAQ (DI)(DI*2), DI
	LEAQ (R11)(DI*8), DI      // open piece
	MOVQ 8(DI), R12
	LEAQ (8+128)(R12)(AX*1), DX
	CMPQ DX, 16(DI)
	JGT  done
	ADDQ (DI), R12
	ANDL $0xffffff, CX
	SHLQ $32, R13
	ORQ  R13, CX
	MOVQ CX, (R12)
	VMOVDQU64 8(SI), Z0
	VMOVDQU64 72(SI), Z1
	VMOVDQU64 Z0, 8(R12)
	VMOVDQU64 Z1, 72(R12)
	PREFETCHT0 144(R12)(AX*1)
	LEAQ 8(AX), DX
	ADDQ DX, 8(DI)
	CMPL AX, $128
	JHI  long

copied:
	ADDQ DX, SI
	JMP  row

suffix:
	MOVL 8(SI)(AX*1), CX
	CMPL CX, $const_maxSpread
	JHI  done
	LEAQ 4(AX)(CX*1), AX
	CMPQ AX, $const_maxSpread
	JHI  done
	JMP  sized

long:
	MOVL $128, CX

more:
	VMOVDQU64 8(SI)(CX*1), Z0
	VMOVDQU64 Z0, 8(R12)(CX*1)
	ADDQ $64, CX
	CMPQ CX, AX
	JLT  more
	JMP  copied

done:
	VZEROUPPER
	SUBQ rows+0(FP), SI
	MOVQ SI, done+40(FP)
	RET

// func scatterVectors(rows *byte, n int, offsets *uint64, known int, chunks *[]byte, many int,
// slash uint32) (done int)
//
// A header and a path are copied by two masked moves, without a branch on their length. They are
// checked before anything is written.
TEXT ·scatterVectors(SB), NOSPLIT, $0-64
	MOVQ rows+0(FP), SI
	MOVQ n+8(FP), R8
	MOVQ offsets+16(FP), R9
	MOVQ known+24(FP), R10
	MOVQ chunks+32(FP), R11
	MOVQ many+40(FP), R12
	MOVL slash+48(FP), R13
	MOVQ $0x100000000, R15
	ADDQ SI, R8

row:
	LEAQ    8(SI), DX
	CMPQ    DX, R8
	JHI     done
	PREFETCHT0 2048(SI)
	PREFETCHT0 2112(SI)
	MOVL    4(SI), AX         // header
	TESTL   $2, AX
	JNZ     done
	SHRL    $2, AX
	JZ      done
	CMPL    AX, $124          // with the header two vectors
	JHI     done
	ADDQ    AX, DX            // end
	CMPQ    DX, R8
	JHI     done
	MOVBLZX 8(SI), CX
	XORL    $47, CX
	TESTL   R13, CX
	JNZ     done

	ADDQ       $4, AX         // size
	MOVQ       $-1, BX
	XORL       DI, DI
	BZHIQ      AX, BX, CX     // all bits from 64 on
	KMOVQ      CX, K1
	LEAQ       -64(AX), CX
	TESTQ      CX, CX
	CMOVQLT    DI, CX
	BZHIQ      CX, BX, CX
	KMOVQ      CX, K2
	VMOVDQU8.Z 4(SI), K1, Z0
	VMOVDQU8.Z 68(SI), K2, Z1
	VPTESTNMB  Z0, Z0, K1, K3 // zero bytes
	VPTESTNMB  Z1, Z1, K2, K4
	KMOVQ      K3, BX
	KMOVQ      K4, CX
	SHRQ       $4, BX         // without those of the header
	ORQ        CX, BX
	JNZ        done

	MOVL (SI), BX             // host
	CMPQ BX, R10
	JCC  done
	MOVQ (R9)(BX*8), CX       // offset, and rows so far in the upper half
	MOVL CX, DI
	SHRL $18, DI
	CMPQ DI, R12
	JCC  done
	LEAQ (DI)(DI*2), DI
	LEAQ (R11)(DI*8), DI      // chunk
	MOVL CX, R14
	ANDL $0x3ffff, R14
	ADDQ AX, CX
	ADDQ R15, CX              // one row more
	ADDQ R14, AX
	CMPQ AX, 8(DI)
	JGT  done
	MOVQ CX, (R9)(BX*8)
	ADDQ (DI), R14
	VMOVDQU8 Z0, K1, (R14)
	VMOVDQU8 Z1, K2, 64(R14)
	MOVQ DX, SI
	JMP  row

done:
	VZEROUPPER
	SUBQ rows+0(FP), SI
	MOVQ SI, done+56(FP)
	RET
