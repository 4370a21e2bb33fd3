package frontier

// Failing counts the keys of which the shards of this process remember failures.
func (f *Frontier) Failing() (n int) {
	for _, s := range f.all() {
		for _, set := range s.coord.AllSettings() {
			if set.Failures > 0 {
				n++
			}
		}
	}
	return n
}
