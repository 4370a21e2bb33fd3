package api

import "sync"

// room keeps the memory of lists of requests that have ended for others. That of the lines of a
// batch is a megabyte.
type room[T any] struct{ pool sync.Pool }

// get returns an empty list, which is to be put back.
func (r *room[T]) get() *[]T {
	if list, ok := r.pool.Get().(*[]T); ok {
		return list
	}
	return new([]T)
}

func (r *room[T]) put(list *[]T) {
	clear(*list) // so that the texts are free
	*list = (*list)[:0]
	r.pool.Put(list)
}
