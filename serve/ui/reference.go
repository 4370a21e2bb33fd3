package ui

// Reference is the content of the page about the HTTP interface.
type Reference struct {
	Title, Summary string
	// Paragraphs say what all requests have in common.
	Paragraphs []string
	// Base is the server's address, with which example requests begin.
	Base   string
	Groups []Group
	// Problems are all kinds of problems.
	Problems []ProblemLink
}

// Group is operations under one heading.
type Group struct {
	Name       string
	Operations []Operation
}

// Operation is one kind of request.
type Operation struct {
	// ID names the operation, and its place on the page.
	ID, Method, Path string
	// Aliases are further paths of the operation.
	Aliases              []string
	Summary, Description string
	Parameters           []Parameter
	// Request is the path of an example, Answer what the server answers to it. Body is what is sent
	// with it. Answer and Body are empty without one.
	Request, Body, Answer string
	// Content are the media types of the answer.
	Content []string
	// Problems are the kinds of problems that the operation can answer.
	Problems []ProblemLink
}

// Parameter is one parameter of an operation. In is path or query. Default is empty without one.
type Parameter struct{ Name, In, Type, Default, Description string }

// ProblemLink leads to the page of a kind of problem.
type ProblemLink struct {
	Path, Name, Title string
	Statuses          []int
}

// Add adds an operation to the group of that name, and the group behind all others if it is new.
func (r *Reference) Add(group string, o Operation) {
	for i := range r.Groups {
		if r.Groups[i].Name == group {
			r.Groups[i].Operations = append(r.Groups[i].Operations, o)
			return
		}
	}
	r.Groups = append(r.Groups, Group{Name: group, Operations: []Operation{o}})
}

// Alias adds a path to the operation at another one, and reports whether that is there.
func (r *Reference) Alias(method, of, path string) bool {
	for _, g := range r.Groups {
		for i := range g.Operations {
			if o := &g.Operations[i]; o.Method == method && o.Path == of {
				o.Aliases = append(o.Aliases, path)
				return true
			}
		}
	}
	return false
}

// Render returns the page as HTML.
func (r *Reference) Render() ([]byte, error) { return render("reference.html", r) }

// Problem is the content of the page about one kind of problem.
type Problem struct {
	// Name is the last part of the type of such a problem document.
	Name, Title string
	// Statuses are those that such a problem can have, with their names.
	Statuses []string
	// Meaning says what happened, Remedy what one can do about it.
	Meaning, Remedy string
	// Members are what such a problem document has besides those that all have.
	Members []Member
}

// Member is a member of a problem document.
type Member struct{ Name, Meaning string }

// Render returns the page as HTML.
func (p *Problem) Render() ([]byte, error) { return render("problem.html", p) }
