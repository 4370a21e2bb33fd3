package api

// The values of headers that many answers share. They must not be changed; who appends to one gets
// a copy.
var (
	typeJSON       = []string{"application/json"}
	typeProblem    = []string{"application/problem+json"}
	noSniff        = []string{"nosniff"}
	noStore        = []string{"no-store"}
	noCache        = []string{"no-cache"}
	privateNoCache = []string{"private, no-cache"}
	varyEncoding   = []string{"Accept-Encoding"}
)

// headerValues has room for the values of headers that nearly every answer has: its id, its length,
// its validator and its encoding. They are one allocation with the request, which lives as long.
type headerValues struct {
	list [4]string
	used int
}

// set gives a header of the answer one value. The name has to be canonical.
func (r *request) set(name, value string) {
	v := &r.values
	if v.used == len(v.list) {
		r.header[name] = []string{value}
		return
	}
	v.list[v.used] = value
	v.used++
	r.header[name] = v.list[v.used-1 : v.used : v.used]
}
