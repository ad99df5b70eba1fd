package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// JSON is the document as it is served.
func (doc *Document) JSON() ([]byte, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("write OpenAPI document: %w", err)
	}
	return text, nil
}

// YAML is the same in YAML's block style, members in their order.
func (doc *Document) YAML() ([]byte, error) {
	text, err := doc.JSON()
	if err != nil {
		return nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil { // JSON is YAML too
		return nil, fmt.Errorf("read OpenAPI document: %w", err)
	}
	useBlocks(&root)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&root); err != nil {
		return nil, fmt.Errorf("write OpenAPI document: %w", err)
	}
	return out.Bytes(), enc.Close()
}

// useBlocks takes away the style of JSON: braces, brackets, and quotes around names that need none.
// Other texts stay quoted, so that no reader takes one for a number or a date.
func useBlocks(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			child.Style = 0
		}
		useBlocks(child)
	}
}
