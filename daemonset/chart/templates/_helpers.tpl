{{- define "drakit.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* The release's name, with the chart's name in it. */}}
{{- define "drakit.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "drakit.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "drakit.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "drakit.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "drakit.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
app.kubernetes.io/name: drakit
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Labels that select the pods of a component. */}}
{{- define "drakit.selector" -}}
app.kubernetes.io/name: drakit
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The settings as a map from the name of a variable to its value. */}}
{{- define "drakit.settings" -}}
{{- range $group, $keys := .Values.settings }}
{{- range $key, $value := $keys }}
{{- $text := ternary $value (toJson $value) (kindIs "string" $value) }}
{{ printf "DRAKIT_%s__%s" (upper $group) (upper $key) }}: {{ $text | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* An admission policy and its binding. Takes root, name, driver, and the family where the account
is of a node driver, which writes slices of its own node; else it writes those of no node. */}}
{{- define "drakit.policy" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}
  labels:
    {{- with .family }}
    app.kubernetes.io/component: {{ . }}
    {{- end }}
    {{- include "drakit.labels" .root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [resource.k8s.io]
        apiVersions: [v1]
        operations: [CREATE, UPDATE, DELETE]
        resources: [resourceslices]
  matchConditions:
    - name: {{ empty .family | ternary "is-the-publisher" "is-the-driver" }}
      expression: request.userInfo.username == "system:serviceaccount:{{ .root.Release.Namespace }}:{{ .name }}"
  variables:
    - name: driver
      expression: {{ .driver | quote | squote }}
    {{- if .family }}
    - name: node
      expression: request.userInfo.?extra[?"authentication.kubernetes.io/node-name"][0].orValue("")
    {{- else }}
    # The pool that the machine's file names. Devices that fill more than one pool are in POOL-1, POOL-2 and so on.
    - name: pool
      expression: {{ .pool | quote | squote }}
    {{- end }}
    # What is written and what it replaces: an update has both, a delete only the old one.
    - name: slices
      expression: "[object, oldObject].filter(slice, slice != null)"
  validations:
    {{- if .family }}
    - expression: variables.node != ""
      reason: Forbidden
      message: this token names no node, so it may not write ResourceSlices; use the token of a pod of the driver
    {{- end }}
    - expression: variables.slices.all(slice, slice.spec.driver == variables.driver)
      reason: Forbidden
      messageExpression: '"this account writes ResourceSlices of the driver " + variables.driver + " only"'
    {{- if .family }}
    - expression: variables.slices.all(slice, slice.spec.?nodeName.orValue("") == variables.node)
      reason: Forbidden
      messageExpression: '"a pod on the node " + variables.node + " writes ResourceSlices of this node only"'
    - expression: variables.slices.all(slice, slice.spec.pool.name == variables.node || slice.spec.pool.name.startsWith(variables.node + "/"))
      reason: Forbidden
      messageExpression: '"a pod on the node " + variables.node + " writes the pools " + variables.node + " and " + variables.node + "/... only"'
    {{- else }}
    - expression: variables.slices.all(slice, slice.spec.?nodeName.orValue("") == "")
      reason: Forbidden
      message: the publisher writes ResourceSlices that belong to no node only
    - expression: >-
        variables.slices.all(slice, slice.spec.pool.name.startsWith(variables.pool)
        && slice.spec.pool.name.substring(size(variables.pool)).matches("^(-[0-9]+)?(/probe)?$"))
      reason: Forbidden
      messageExpression: '"the publisher writes the pools " + variables.pool + " and " + variables.pool + "-N only"'
    {{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels:
    {{- with .family }}
    app.kubernetes.io/component: {{ . }}
    {{- end }}
    {{- include "drakit.labels" .root | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end }}
