package parquetin

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/urlake/urlake/lake/raw"
)

// budget bounds the memory of one reader of a file: the buffers of all its columns' pages, as they
// are stored and decompressed, and what decoders allocate beside them. It is the allocator that
// arrow-go takes buffers from. What is beyond the limit is not allocated: the file is refused.
type budget struct {
	heap  *memory.GoAllocator
	limit int64
	used  int64
	// more tells that a reader with more memory may have a higher limit.
	more bool
}

// budgetError is the error of a file whose pages need more memory than there is for one reader.
type budgetError struct {
	limit int64
	more  bool
}

// Is makes errors.Is(err, raw.ErrPageMemory) true where more memory helps.
func (e *budgetError) Is(target error) bool { return e.more && target == raw.ErrPageMemory }

func (e *budgetError) Error() string {
	return fmt.Sprintf("its pages take more than %d MiB of memory; name the columns to keep (--extras), "+
		"or write the file with smaller pages and dictionaries", e.limit>>20)
}

// take counts n bytes that are about to be allocated.
func (b *budget) take(n int64) error {
	if n > b.limit-b.used {
		return &budgetError{b.limit, b.more}
	}
	b.used += n
	return nil
}

// give counts n bytes that are no longer used.
func (b *budget) give(n int64) { b.used -= n }

// Allocate panics with a *budgetError beyond the limit, as an allocator has no other way to fail.
// guard returns the error.
func (b *budget) Allocate(size int) []byte {
	if err := b.take(int64(size)); err != nil {
		panic(err)
	}
	return b.heap.Allocate(size)
}

// Reallocate panics as Allocate does.
func (b *budget) Reallocate(size int, old []byte) []byte {
	if size <= cap(old) {
		return old[:size]
	}
	// Both are in memory while the old bytes are copied.
	grown := b.Allocate(size)
	copy(grown, old)
	b.Free(old)
	return grown
}

// Free counts a buffer that is no longer used. The garbage collector frees it.
func (b *budget) Free(old []byte) { b.give(int64(cap(old))) }
