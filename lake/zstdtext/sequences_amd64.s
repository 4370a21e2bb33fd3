#include "go_asm.h"
#include "textflag.h"

// STATE appends what a state gives off before a symbol, whose number is in R14, and moves on.
#define STATE(table, state) \
	MOVQ    (table+codeTable_fse+fseEncoder_symbols)(R13)(R14*8), CX \
	LEAL    (state)(CX*1), DX    \
	SHRL    $16, DX              \
	BZHIL   DX, state, R15       \
	SHLXQ   BX, R15, R15         \
	ORQ     R15, R8              \
	ADDL    DX, BX               \
	SHRXL   DX, state, state     \
	SARQ    $32, CX              \
	ADDQ    CX, state            \
	MOVWLZX (table+codeTable_fse+fseEncoder_states)(R13)(state*2), state

// OUT moves whole bytes out.
#define OUT \
	MOVQ  R8, (DI)   \
	MOVL  BX, CX     \
	MOVL  BX, DX     \
	SHRL  $3, CX     \
	ANDL  $0x38, DX  \
	ADDQ  CX, DI     \
	SHRXQ DX, R8, R8 \
	ANDL  $7, BX

// func encodeBMI2(q *sequences, last *sequence, buf *byte, b *sequenceBits)
TEXT ·encodeBMI2(SB), NOSPLIT, $0-32
	MOVQ q+0(FP), R13
	MOVQ last+8(FP), SI
	MOVQ buf+16(FP), DI
	MOVQ b+24(FP), AX
	MOVQ sequences_list(R13), R9
	MOVLQZX sequenceBits_ll(AX), R10
	MOVLQZX sequenceBits_ml(AX), R11
	MOVLQZX sequenceBits_of(AX), R12
	XORL R8, R8                     // bits that are not out yet
	XORL BX, BX                     // how many

sequence:
	MOVL  sequence_codes(SI), AX
	MOVL  sequence_extra(SI), CX
	SHLXQ BX, CX, CX
	ORQ   CX, R8
	MOVL  AX, DX
	SHRL  $24, DX
	ADDL  DX, BX
	CMPL  BX, $32
	JHI   long

offset:
	SHRL  $16, AX
	ANDL  $0x3f, AX
	MOVL  sequence_offset(SI), CX
	BZHIL AX, CX, CX
	SHLXQ BX, CX, CX
	ORQ   CX, R8
	ADDL  AX, BX
	OUT
	SUBQ  $sequence__size, SI
	CMPQ  SI, R9
	JCS   done
	MOVL  sequence_codes(SI), AX
	MOVL  AX, R14
	SHRL  $16, R14
	ANDL  $0x3f, R14
	STATE(sequences_of, R12)
	MOVL  AX, R14
	SHRL  $8, R14
	ANDL  $0x3f, R14
	STATE(sequences_ml, R11)
	ANDL  $0x3f, AX
	MOVL  AX, R14
	STATE(sequences_ll, R10)
	JMP   sequence

long: // few lengths have extra bits
	OUT
	JMP offset

done:
	MOVQ b+24(FP), AX
	MOVL R10, sequenceBits_ll(AX)
	MOVL R11, sequenceBits_ml(AX)
	MOVL R12, sequenceBits_of(AX)
	MOVL BX, sequenceBits_have(AX)
	MOVQ R8, sequenceBits_acc(AX)
	SUBQ buf+16(FP), DI
	MOVQ DI, sequenceBits_at(AX)
	RET
