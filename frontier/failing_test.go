package frontier

// Failing counts the keys of which the shards of this process remember failures.
func (f *Frontier) Failing() (n int) {
	for _, s := range f.all() {
		s.domains.failing.Range(func(any, any) bool { n++; return true })
	}
	return n
}
