package openapi

// Problems lists every kind, in the order of statuses. Answers, the document, the pages and
// docs/api.md have the same ones, which tests check.
var Problems = []Kind{
	{
		Name: "not-a-host", Statuses: []int{400}, Title: "Not a host or URL",
		Meaning: "What stands in the domain's place is neither a host nor a URL.",
		Remedy: "Give a domain, a host or a URL, such as example.com, and escape it as one element of the path: " +
			"a slash as %2F, a percent sign as %25.",
		Members: []Member{{Name: "reason", Meaning: "scheme, no_host, host, port or too_long"}},
	},
	{
		Name: "bad-parameter", Statuses: []int{400}, Title: "Invalid parameter",
		Meaning: "A parameter is unknown to the path, unless that is a page, is given twice, or has a value that is not allowed.",
		Remedy:  "Correct it as detail says. A parameter without a value is not the same as none.",
		Members: []Member{{Name: "parameter", Meaning: "the parameter's name"}},
	},
	{
		Name: "bad-cursor", Statuses: []int{400}, Title: "The cursor does not belong to this query",
		Meaning: "The cursor was invented or altered, or comes from another query.",
		Remedy:  "Follow next of the previous page, or start again without cursor.",
	},
	{
		Name: "bad-version", Statuses: []int{400}, Title: "Not a version id",
		Meaning: "The text is neither the id nor the name of a version.",
		Remedy:  "Take an id or a tag of /v1/versions, or leave the version out to get the current one.",
	},
	{
		Name: "bad-list", Statuses: []int{400}, Title: "The list could not be read",
		Meaning: "The body broke off, or is not of the form that Content-Type says.",
		Remedy:  "Send the whole list again, in the form that Content-Type names.",
	},
	{
		Name: "bad-request", Statuses: []int{400, 417, 431, 501, 505}, Title: "Malformed request",
		Meaning: "The request is not proper HTTP: it has, for example, an invalid percent-escape or headers that " +
			"are too large, or asks for a stream by HTTP/1.0. The server closes the connection.",
		Remedy: "In the path, write a percent sign as %25 and a space as %20; send less than 256 KiB of headers, by " +
			"HTTP/1.1.",
	},
	{
		Name: "unauthorized", Statuses: []int{401}, Title: "The credentials are not taken",
		Meaning: "The header Authorization has no token that the server takes. detail says why.",
		Remedy: "Send the token as Authorization: Bearer TOKEN. Those who run the server make one with starter " +
			"token. A request without the header reads what is public.",
	},
	{
		Name: "forbidden", Statuses: []int{403}, Title: "explain=1 is for those who may read all datasets",
		Meaning: "The reads of the store tell of all datasets, and some are not for you.",
		Remedy:  "Leave explain out.",
	},
	{
		Name: "unknown-dataset", Statuses: []int{404}, Title: "The version has no such dataset",
		Meaning: "No dataset of the version that you may read has this id or name.",
		Remedy:  "Take dataset_id or name from /v1/datasets.",
	},
	{
		Name: "unknown-version", Statuses: []int{404}, Title: "No such version was published",
		Meaning: "The lake has no version with this id or name.",
		Remedy:  "Take an id or a tag of /v1/versions. A tag that was set just now is found after a few seconds.",
	},
	{
		Name: "no-such-path", Statuses: []int{404}, Title: "No such path",
		Meaning: "The server has nothing at this path.",
		Remedy: "/api lists all paths. A URL in place of the domain must be percent-escaped, including its " +
			"slashes.",
	},
	{
		Name: "method-not-allowed", Statuses: []int{405}, Title: "The path takes other methods",
		Meaning: "The server only reads: GET and HEAD, and POST for lists of domains. Allow names what the path takes.",
		Remedy:  "Use one of these. A lake is changed with the program starter.",
	},
	{
		Name: "not-acceptable", Statuses: []int{406}, Title: "The answer has no such form",
		Meaning: "Accept, or format, names no form that the answer has.",
		Remedy:  "Ask for one of those that detail names.",
	},
	{
		Name: "too-slow", Statuses: []int{408}, Title: "The list came too slowly",
		Meaning: "The client sent its list more slowly than the server waits for, or others waited for the room that it took.",
		Remedy:  "Send the list again, all at once, or in pieces if the network is slow. detail says how fast it has to be.",
	},
	{
		Name: "version-gone", Statuses: []int{410},
		Title:   "The version is no longer kept; start again without version and cursor",
		Meaning: "The version was published once and has been deleted since.",
		Remedy:  "Start again without version and cursor. /v1/versions lists the versions that are kept.",
	},
	{
		Name: "too-large", Statuses: []int{413}, Title: "The list is too large",
		Meaning: "The body of the request is over a limit.",
		Remedy:  "Divide the list.",
		Members: []Member{
			{Name: "limit", Meaning: "lines, line_bytes or body_bytes"},
			{Name: "maximum", Meaning: "the limit, as text"},
		},
	},
	{
		Name: "unsupported-media-type", Statuses: []int{415}, Title: "The body is of no known form",
		Meaning: "Content-Type names no form of a list.",
		Remedy:  "Use one of those that detail names, or leave Content-Type out.",
	},
	{
		Name: "misdirected", Statuses: []int{421}, Title: "The server has no such host",
		Meaning: "The request is for a host that is no name of the server. Pages of strangers send such requests.",
		Remedy:  "Ask for localhost. Behind a proxy on the same machine, start the server with --allow-host and the proxy's name.",
	},
	{
		Name: "too-many-parts", Statuses: []int{422}, Title: "Too many parts for a list of distinct URLs",
		Meaning: "The domain has rows in more parts of the dataset than unique=1 merges.",
		Remedy: "Leave out unique, and drop the rows whose url_id was there. Those who run the server can compact the " +
			"dataset, which makes few parts of many.",
	},
	{
		Name: "filter-too-large", Statuses: []int{422}, Title: "The regular expression is too large for a value",
		Meaning: "A filter with a regular expression met a value so long that matching the two would hold the server up.",
		Remedy: "Repeat less in the regular expression, as x{100} counts as 100 x, or select rows without such values " +
			"by host, prefix, from or to.",
	},
	{
		Name: "tree-too-large", Statuses: []int{422}, Title: "The tree is too large for one answer",
		Meaning: "Counting what is below the path takes more rows or more directories than the server handles for one " +
			"answer.",
		Remedy: "Ask for a path further down, for less depth, or for one dataset. Those who run the server can build the " +
			"index of trees (starter tree build), with which rows need not be read.",
		Members: []Member{
			{Name: "limit", Meaning: "rows or nodes"},
			{Name: "maximum", Meaning: "the limit, as text"},
		},
	},
	{
		Name: "too-many-requests", Statuses: []int{429}, Title: "This client has too many requests in flight",
		Meaning: "Requests of the same client take as much of the server as one client may have.",
		Remedy:  "Wait for answers before sending more, and ask again after the seconds that Retry-After names.",
	},
	{
		Name: "corrupt", Statuses: []int{500}, Title: "An object of the lake is damaged",
		Meaning: "What the server read is not what was written. Damage never becomes a wrong answer.",
		Remedy:  "Tell those who run the server. detail ends with the command that mends the object.",
		Members: []Member{
			{Name: "file", Meaning: "the damaged object's key in the lake"},
			{Name: "section", Meaning: "the part of the object"},
			{Name: "offset", Meaning: "the offset in the object, in bytes, as text"},
		},
	},
	{
		Name: "panic", Statuses: []int{500}, Title: "Internal server error",
		Meaning: "The server has a defect that this request found. Other requests are not affected.",
		Remedy:  "Tell those who run the server. Its log has the stack.",
	},
	{
		Name: "lake", Statuses: []int{502}, Title: "The lake could not be read",
		Meaning: "The object store does not answer, or an object is missing.",
		Remedy:  "Ask again later. Those who run the server find the whole error in its log.",
	},
	{
		Name: "not-ready", Statuses: []int{503}, Title: "The server cannot answer yet",
		Meaning: "No version is open, for example because none was published yet, or credentials cannot be checked now.",
		Remedy:  "Ask again after the seconds that the header Retry-After names.",
	},
	{
		Name: "overloaded", Statuses: []int{503}, Title: "The server has no room for this request now",
		Meaning: "Answers that are under way take all the memory and time that the server has for such requests.",
		Remedy:  "Ask again after the seconds that Retry-After names.",
	},
	{
		Name: "too-many-connections", Statuses: []int{503}, Title: "The server has no room for this connection",
		Meaning: "The server has as many connections as it may have, and closes this one.",
		Remedy:  "Ask again after the seconds that Retry-After names, and use one connection for many requests.",
	},
	{
		Name: "stopping", Statuses: []int{503}, Title: "The server is about to stop",
		Meaning: "The server still answers, but is about to stop. Only /readyz says so.",
		Remedy:  "Send further requests to another server.",
	},
	{
		Name: "computing", Statuses: []int{503}, Title: "The answer is being computed",
		Meaning: "The answer needs a scan that takes longer than a request may take. The scan goes on.",
		Remedy:  "Ask again after the seconds that Retry-After names.",
	},
	{
		Name: "deadline", Statuses: []int{504}, Title: "The lake was too slow",
		Meaning: "Nothing of the page was read within the time that a page may take.",
		Remedy: "Ask again: what was read is cached by then. Those who run the server can raise " +
			"--deadline.",
	},
}
