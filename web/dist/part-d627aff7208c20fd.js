import{a,b,c}from"./part-653b8c3b52c82127.js";import"./part-03b4dc51e47b9934.js";export{b as EditRule,a as Rules,c as Vacation};
