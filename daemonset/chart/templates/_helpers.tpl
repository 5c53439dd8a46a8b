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
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Annotations of a service account, with their key. */}}
{{- define "drakit.accountAnnotations" -}}
{{- with .Values.serviceAccount.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
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

{{/* An admission policy for the account of a node driver, and its binding. Takes root, name, driver and family. */}}
{{- define "drakit.policy" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}
  labels:
    app.kubernetes.io/component: {{ .family }}
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
    - name: is-the-driver
      expression: request.userInfo.username == "system:serviceaccount:{{ .root.Release.Namespace }}:{{ .name }}"
  variables:
    - name: driver
      expression: {{ .driver | quote | squote }}
    - name: node
      expression: request.userInfo.?extra[?"authentication.kubernetes.io/node-name"][0].orValue("")
    # What is written and what it replaces: an update has both, a delete only the old one.
    - name: slices
      expression: "[object, oldObject].filter(slice, slice != null)"
  validations:
    - expression: variables.node != ""
      reason: Forbidden
      message: this token names no node, so it may not write ResourceSlices; use the token of a pod of the driver
    - expression: variables.slices.all(slice, slice.spec.driver == variables.driver)
      reason: Forbidden
      messageExpression: '"this account writes ResourceSlices of the driver " + variables.driver + " only"'
    - expression: variables.slices.all(slice, slice.spec.?nodeName.orValue("") == variables.node)
      reason: Forbidden
      messageExpression: '"a pod on the node " + variables.node + " writes ResourceSlices of this node only"'
    - expression: variables.slices.all(slice, slice.spec.pool.name == variables.node || slice.spec.pool.name.startsWith(variables.node + "/"))
      reason: Forbidden
      messageExpression: '"a pod on the node " + variables.node + " writes the pools " + variables.node + " and " + variables.node + "/... only"'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels:
    app.kubernetes.io/component: {{ .family }}
    {{- include "drakit.labels" .root | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end }}
