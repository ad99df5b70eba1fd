package openapi

import "strings"

// A PathOperation is an operation with its method and path. For an event, Path is the type of the
// event and Row is nil.
type PathOperation struct {
	Method, Path string
	*operationObject
}

// InGroup returns the operations and events that have the group as their tag.
func (doc *Document) InGroup(group string) (out []PathOperation) {
	for _, paths := range []Dict[Dict[*operationObject]]{doc.Paths, doc.Webhooks} {
		for _, path := range paths {
			for _, m := range path.Value {
				if m.Value.Tags[0] == group {
					out = append(out, PathOperation{strings.ToUpper(m.Name), path.Name, m.Value})
				}
			}
		}
	}
	return out
}

// Parameter returns p, or the shared parameter that p refers to.
func (doc *Document) Parameter(p *Parameter) *Parameter {
	if p.Ref != "" {
		return doc.Components.Parameters.Get(RefName(p.Ref))
	}
	return p
}

// RefName returns the name of the schema or parameter that a reference points to.
func RefName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }
