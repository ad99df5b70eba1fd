import{a,b,c}from"./part-d9936a7aa79bd585.js";import"./part-994137467ba276f9.js";export{b as EditRule,a as Rules,c as Vacation};
