#include "go_asm.h"
#include "textflag.h"

// STATE appends the bits that a state gives off before the symbol in R14 and computes the next
// state.
#define STATE(table, state) \
	MOVL    (table+codeTable_fse+fseEncoder_symbols)(R13)(R14*8), DX \
	ADDL    state, DX            \
	SHRL    $16, DX              \
	BZHIL   DX, state, R15       \
	SHLXQ   BX, R15, R15         \
	ORQ     R15, R8              \
	ADDL    DX, BX               \
	SHRXL   DX, state, state     \
	ADDL    (table+codeTable_fse+fseEncoder_symbols+4)(R13)(R14*8), state \
	MOVWLZX (table+codeTable_fse+fseEncoder_states)(R13)(state*2), state

// OUT writes the whole bytes of the BX bits in R8 to DI.
#define OUT \
	MOVQ  R8, (DI)   \
	MOVL  BX, CX     \
	MOVL  BX, DX     \
	SHRL  $3, CX     \
	ANDL  $0x38, DX  \
	ADDQ  CX, DI     \
	SHRXQ DX, R8, R8 \
	ANDL  $7, BX

// func encodeBMI2(q *sequences, n int, buf *byte, b *sequenceBits)
TEXT ·encodeBMI2(SB), NOSPLIT, $0-32
	MOVQ q+0(FP), R13
	MOVQ n+8(FP), SI
	MOVQ buf+16(FP), DI
	MOVQ b+24(FP), CX
	MOVQ sequences_bits(R13), AX
	MOVQ sequences_codes(R13), R9
	MOVLQZX sequenceBits_ll(CX), R10
	MOVLQZX sequenceBits_ml(CX), R11
	MOVLQZX sequenceBits_of(CX), R12
	XORL R8, R8                     // bits not written yet
	XORL BX, BX                     // their number
	DECQ SI

sequence:
	MOVQ    (AX)(SI*8), CX
	SHLXQ   BX, CX, CX
	ORQ     CX, R8
	MOVBLZX 3(R9)(SI*4), DX
	ADDL    DX, BX
	CMPL    DX, $const_maxUnflushedBits
	JHI     long

states:
	DECQ    SI
	JLT     done
	MOVBLZX 2(R9)(SI*4), R14
	STATE(sequences_of, R12)
	MOVBLZX 1(R9)(SI*4), R14
	STATE(sequences_ml, R11)
	MOVBLZX (R9)(SI*4), R14
	STATE(sequences_ll, R10)
	OUT
	JMP     sequence

long: // few sequences have so many bits
	OUT
	JMP states

done:
	OUT
	MOVQ b+24(FP), AX
	MOVL R10, sequenceBits_ll(AX)
	MOVL R11, sequenceBits_ml(AX)
	MOVL R12, sequenceBits_of(AX)
	MOVL BX, sequenceBits_have(AX)
	MOVQ R8, sequenceBits_acc(AX)
	SUBQ buf+16(FP), DI
	MOVQ DI, sequenceBits_at(AX)
	RET

// The indexes of the first of three numbers each of 16 matches, in the 48 numbers of three
// registers.
DATA thirds<>+0(SB)/8, $0x0000000300000000
DATA thirds<>+8(SB)/8, $0x0000000900000006
DATA thirds<>+16(SB)/8, $0x0000000f0000000c
DATA thirds<>+24(SB)/8, $0x0000001500000012
DATA thirds<>+32(SB)/8, $0x0000001b00000018
DATA thirds<>+40(SB)/8, $0x000000210000001e
DATA thirds<>+48(SB)/8, $0x0000002700000024
DATA thirds<>+56(SB)/8, $0x0000002d0000002a
GLOBL thirds<>(SB), RODATA|NOPTR, $64

// func codesAVX512(matches *match, n, end int, distance uint32, lengths *lengthTables, bits
// *uint64, codes *uint32)
TEXT ·codesAVX512(SB), NOSPLIT, $0-56
	MOVQ matches+0(FP), SI
	MOVQ n+8(FP), DX
	VPBROADCASTD end+16(FP), Z11      // ends of the preceding matches
	MOVL distance+24(FP), AX
	VPBROADCASTD AX, Z12              // their distances
	MOVQ lengths+32(FP), AX
	MOVQ bits+40(FP), DI
	MOVQ codes+48(FP), R8
	VMOVDQU8 lengthTables_literals(AX), Z16
	VMOVDQU8 lengthTables_literalBits(AX), Z17
	VMOVDQU8 lengthTables_matches(AX), Z18
	VMOVDQU8 (lengthTables_matches+64)(AX), Z19
	VMOVDQU8 lengthTables_matchBits(AX), Z20
	MOVL $1, AX
	VPBROADCASTD AX, Z21
	MOVL $2, AX
	VPBROADCASTD AX, Z22
	MOVL $3, AX
	VPBROADCASTD AX, Z23
	MOVL $31, AX
	VPBROADCASTD AX, Z24
	MOVL $63, AX
	VPBROADCASTD AX, Z25
	MOVL $127, AX
	VPBROADCASTD AX, Z26
	MOVL $19, AX
	VPBROADCASTD AX, Z27
	MOVL $36, AX
	VPBROADCASTD AX, Z28
	VMOVDQU32 thirds<>(SB), Z13
	VPADDD    Z21, Z13, Z14
	VPADDD    Z22, Z13, Z15
	VPTERNLOGD $0xff, Z31, Z31, Z31   // ones
	VPSRLD    $5, Z13, Z0
	VPTESTMD  Z0, Z0, K1
	VPSRLD    $5, Z14, Z0
	VPTESTMD  Z0, Z0, K2
	VPSRLD    $5, Z15, Z0
	VPTESTMD  Z0, Z0, K3

sixteen:
	VMOVDQU32 (SI), Z0
	VMOVDQU32 64(SI), Z1
	VMOVDQU32 128(SI), Z2
	VMOVDQA32 Z13, Z3
	VPERMI2D  Z1, Z0, Z3
	VPERMD    Z2, Z13, K1, Z3         // starts
	VMOVDQA32 Z14, Z4
	VPERMI2D  Z1, Z0, Z4
	VPERMD    Z2, Z14, K2, Z4         // ends
	VMOVDQA32 Z15, Z5
	VPERMI2D  Z1, Z0, Z5
	VPERMD    Z2, Z15, K3, Z5         // distances
	VALIGND   $15, Z11, Z4, Z0
	VMOVDQA32 Z4, Z11
	VPSUBD    Z3, Z4, Z4
	VPSUBD    Z23, Z4, Z4             // lengths of matches
	VPSUBD    Z0, Z3, Z3              // numbers of literals
	VALIGND   $15, Z12, Z5, Z0
	VMOVDQA32 Z5, Z12
	VPTESTMD  Z3, Z3, K4
	VPCMPEQD  Z0, Z5, K4, K4          // the preceding distance again
	VPADDD    Z23, Z5, Z5
	VMOVDQA32 Z21, K4, Z5             // offset values
	VPLZCNTD  Z5, Z6
	VPSUBD    Z6, Z24, Z6             // their codes
	VPSLLVD   Z6, Z21, Z0
	VPANDND   Z5, Z0, Z5              // their extra bits

	VPERMB    Z16, Z3, Z7             // codes of literals
	VPERMB    Z17, Z7, Z8             // the number of their extra bits
	VPCMPUD   $6, Z25, Z3, K4
	VPLZCNTD  Z3, Z0
	VPSUBD    Z0, Z24, K4, Z8
	VPADDD    Z27, Z8, K4, Z7
	VPSLLVD   Z8, Z31, Z0
	VPANDND   Z3, Z0, Z3              // their extra bits

	VMOVDQA32 Z4, Z9
	VPERMI2B  Z19, Z18, Z9            // codes of matches
	VPERMB    Z20, Z9, Z10            // the number of their extra bits
	VPCMPUD   $6, Z26, Z4, K4
	VPLZCNTD  Z4, Z0
	VPSUBD    Z0, Z24, K4, Z10
	VPADDD    Z28, Z10, K4, Z9
	VPSLLVD   Z10, Z31, Z0
	VPANDND   Z4, Z0, Z4              // their extra bits

	VPSLLVD   Z8, Z4, Z4
	VPORD     Z4, Z3, Z3              // extra bits of both
	VPADDD    Z10, Z8, Z8             // their number
	VPADDD    Z6, Z8, Z10             // and with those of the offset
	VPSLLD    $8, Z9, Z9
	VPSLLD    $16, Z6, Z6
	VPSLLD    $24, Z10, Z10
	VPORD     Z9, Z7, Z7
	VPTERNLOGD $0xfe, Z10, Z6, Z7
	VMOVDQU32 Z7, (R8)
	VPMOVZXDQ Y3, Z0
	VPMOVZXDQ Y5, Z1
	VPMOVZXDQ Y8, Z2
	VPSLLVQ   Z2, Z1, Z1
	VPORQ     Z1, Z0, Z0
	VMOVDQU64 Z0, (DI)
	VEXTRACTI64X4 $1, Z3, Y3
	VEXTRACTI64X4 $1, Z5, Y5
	VEXTRACTI64X4 $1, Z8, Y8
	VPMOVZXDQ Y3, Z0
	VPMOVZXDQ Y5, Z1
	VPMOVZXDQ Y8, Z2
	VPSLLVQ   Z2, Z1, Z1
	VPORQ     Z1, Z0, Z0
	VMOVDQU64 Z0, 64(DI)
	ADDQ $(16*match__size), SI
	ADDQ $128, DI
	ADDQ $64, R8
	SUBQ $16, DX
	JGT  sixteen
	VZEROUPPER
	RET

// func copyAVX2(q *sequences, codes *uint32, text *byte, matches *match, n, anchor, limit int, lits
// *byte) (i, at, end int)
TEXT ·copyAVX2(SB), NOSPLIT, $0-88
	MOVQ q+0(FP), R13
	MOVQ codes+8(FP), R9
	MOVQ text+16(FP), R8
	MOVQ matches+24(FP), SI
	MOVQ n+32(FP), R11
	MOVQ anchor+40(FP), AX
	MOVQ limit+48(FP), R10
	MOVQ lits+56(FP), DI
	LEAQ (R9)(R11*4), R11

next:
	MOVLQZX match_start(SI), CX
	CMPQ CX, R10
	JGT  done
	SUBQ AX, CX
	VMOVDQU (R8)(AX*1), Y0
	VMOVDQU Y0, (DI)
	CMPQ CX, $const_copyWidth
	JGT  long

copied:
	ADDQ CX, DI
	MOVLQZX match_end(SI), AX
	MOVBLZX (R9), DX
	INCL (sequences_ll+codeTable_counts)(R13)(DX*4)
	MOVBLZX 1(R9), CX
	INCL (sequences_ml+codeTable_counts)(R13)(CX*4)
	MOVBLZX 2(R9), DX
	INCL (sequences_of+codeTable_counts)(R13)(DX*4)
	ADDQ $match__size, SI
	ADDQ $4, R9
	CMPQ R9, R11
	JLT  next

done:
	SUBQ codes+8(FP), R9
	SHRQ $2, R9
	MOVQ R9, i+64(FP)
	SUBQ lits+56(FP), DI
	MOVQ DI, at+72(FP)
	MOVQ AX, end+80(FP)
	VZEROUPPER
	RET

long:
	LEAQ (R8)(AX*1), DX
	XORL BX, BX

more:
	ADDQ $const_copyWidth, BX
	VMOVDQU (DX)(BX*1), Y0
	VMOVDQU Y0, (DI)(BX*1)
	LEAQ const_copyWidth(BX), AX
	CMPQ AX, CX
	JLT  more
	JMP  copied
